package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// completeArguments adds the command that prints completion scripts, and lets shells complete the names of files
// only for arguments that are files.
func completeArguments(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range commandTree(root) {
		switch {
		case cmd.CommandPath() == "cuelight completion":
			cmd.Short = "Print the completion script for a shell"
			hideSettings(root, cmd)
		case cmd.Name() == "powershell": // Cuelight does not run on Windows
			cmd.Parent().RemoveCommand(cmd)
		}
		if cmd.ValidArgsFunction == nil && !strings.Contains(cmd.Use, "FILE") {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
}
