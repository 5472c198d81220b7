"""Shows the collectives that workers have recorded: merges their files, aligns their clocks, and names the slowest worker."""
