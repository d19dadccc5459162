package main

import (
	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

func (c *cli) visibilityCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "visibility ID public|signed", Short: "Change who can watch a video without a key",
		Long: `Visibility changes who can watch a video at a daemon with --listen: everybody (public), or
only those who have a signed address (signed, the default). It takes effect at once, and
nothing is published again. cuelight link prints the address.

  cuelight visibility 5f9c41ab public

A web server that serves the publish directory itself does not know the visibility.`,
		Args: arguments(2, 2, "ID and public or signed"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return []string{video.VisibilityPublic, video.VisibilitySigned}, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		return c.withExistingDatabase(ctx, func(db *dbconn.Database) error {
			return c.eachTask(ctx, db.Store, args[:1], func(task store.ID) error {
				if err := c.actions(db).SetVisibility(ctx, task, args[1]); err != nil {
					return err
				}
				return c.printResult(task, args[1])
			})
		})
	}
	return cmd
}
