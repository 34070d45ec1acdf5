"""PTX as data: a reader, a graph of control flow, what instructions read and write. Knows neither Triton nor the IR."""
