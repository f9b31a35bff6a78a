"""The subcommands of `fairseq-posenc`, one file each."""
