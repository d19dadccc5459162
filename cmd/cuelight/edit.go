package main

import (
	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

func (c *cli) editCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "edit ID...", Short: "Change the title, the description and the visibility of a video",
		Long: `Edit changes what viewers see of a video, at once; nothing is published again. An empty
title or description removes it. Everybody can watch a public video at a daemon with
--listen, without a key, and only who has a signed address can watch a signed one, the
default: cuelight link prints the addresses.

  cuelight edit 5f9c41ab --title "A walk by the sea"
  cuelight edit 5f9c41ab --visibility public

A web server that serves the publish directory itself does not know the visibility.`,
		Args: atLeastOne("ID"),
	}
	f := cmd.Flags()
	var title, description, visibility string
	f.StringVar(&title, "title", "", "title of the video")
	f.StringVar(&description, "description", "", "text about the video")
	f.StringVar(&visibility, "visibility", "", "public or signed")
	_ = cmd.RegisterFlagCompletionFunc("visibility", cobra.FixedCompletions(
		[]string{video.VisibilityPublic, video.VisibilitySigned}, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var edit video.Edit
		for name, to := range map[string]struct {
			value  *string
			member **string
		}{"title": {&title, &edit.Title}, "description": {&description, &edit.Description}, "visibility": {&visibility, &edit.Visibility}} {
			if f.Changed(name) {
				*to.member = to.value
			}
		}
		if edit == (video.Edit{}) {
			return usererr.Usagef("there is nothing to change: use --title, --description or --visibility")
		}
		ctx := cmd.Context()
		return c.withExistingDatabase(ctx, func(db *dbconn.Database) error {
			return c.eachTask(ctx, db.Store, args, func(task store.ID) error {
				if err := c.actions(db).Edit(ctx, task, edit); err != nil {
					return err
				}
				return c.printResult(task, "changed")
			})
		})
	}
	return cmd
}
