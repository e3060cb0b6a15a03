"""Tables with holes: any kind of them as cells with ids, and what a model says of the holes."""
