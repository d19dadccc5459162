package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand is hidden, because only the build of packages needs it.
func (c *cli) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages",
		Long:   "Man writes a manual page for each command into a directory.",
		Hidden: true,
		Args:   exactlyOne("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, sub := range commandTree(cmd.Root()) {
				sub.Long = manText(sub.Long)
				sub.DisableAutoGenTag = true
			}
			header := &doc.GenManHeader{Section: "1", Source: "Cuelight", Manual: "Cuelight"}
			return doc.GenManTree(cmd.Root(), header, args[0])
		},
	}
}

// markdown escapes what the generator would read as Markdown.
var markdown = strings.NewReplacer("*", `\*`, "_", `\_`, "<", `\<`, "`", "\\`")

// manText returns a help text as the generator takes it: indented lines keep their form.
func manText(help string) string {
	var b strings.Builder
	wasIndented := false
	for line := range strings.Lines(help) {
		isIndented := strings.HasPrefix(line, "  ")
		if isIndented != wasIndented {
			b.WriteString("\n")
		}
		wasIndented = isIndented
		if isIndented {
			b.WriteString("  " + line)
		} else {
			b.WriteString(markdown.Replace(line))
		}
	}
	return b.String()
}
