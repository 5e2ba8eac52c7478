-- What each product earned, by day.
SELECT day, product, sum(amount) AS revenue, count(*) AS orders
FROM orders
GROUP BY day, product
