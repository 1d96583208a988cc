"""`python -m unisono`: the program `unisono`."""

from unisono._program import main

main()
