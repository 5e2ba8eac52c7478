"""Tables that other engines wrote."""
