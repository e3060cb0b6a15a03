"""Tables and figures: which runs each needs, and what it makes of them."""
