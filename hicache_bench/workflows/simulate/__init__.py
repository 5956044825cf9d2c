"""What ``simulate`` does: points of a sweep, each a modelled request."""
