"""PTX, read and edited between LLVM and ptxas."""
