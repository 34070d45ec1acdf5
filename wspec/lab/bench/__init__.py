"""Measuring: kernels against each other and against the libraries, on the card at hand.

Every module here imports without a GPU; running one without a GPU is an error with exit code 2.
"""
