-- The product that earned most, by day.
SELECT day, max_by(product, revenue) AS product, max(revenue) AS revenue
FROM revenue
GROUP BY day
