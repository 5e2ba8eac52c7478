"""The engines that we are measured against, each in an environment of its own that is built when first needed."""
