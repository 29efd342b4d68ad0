"""The command line's subcommands, one file each; they are loaded when called."""
