"""The subcommands of `fairseq-posenc`, a file each."""
