"""Training programs and what only training needs."""
