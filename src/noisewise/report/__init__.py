"""What a model has learned, to look at: figures, and a page that holds them."""
