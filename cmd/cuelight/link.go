package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

const playbackKeysUsage = "file with the keys of addresses for viewers, one in each line (default DATA-DIR/secrets/playback)"

// viewerFlags are what the addresses of published videos are made of.
type viewerFlags struct{ keys, publicURL string }

func addViewerFlags(f *pflag.FlagSet) *viewerFlags {
	v := &viewerFlags{}
	f.StringVar(&v.publicURL, "public-url", "", publicURLUsage+" (default: the path alone)")
	f.StringVar(&v.keys, "playback-keys", "", playbackKeysUsage)
	return v
}

func (c *cli) linkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "link ID", Short: "Print an address with which anybody can watch a video", Args: exactlyOne("ID"),
		Long: `Link prints the address of a page that plays a published video, valid for a time, for
everybody who has it. With --json it prints the addresses of the HLS playlist and all
other files, too. A daemon that serves the video with --listen, and has the same keys,
checks them. They play all versions of the video that are published meanwhile. The
addresses of a public video (cuelight edit) have no time, and need no keys.

  cuelight link 5f9c41ab --expires 168h --public-url https://media.example`,
	}
	f := cmd.Flags()
	expires := f.Duration("expires", 24*time.Hour, "how long the address is valid at least")
	viewers := addViewerFlags(f)
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.link(cmd.Context(), args[0], *viewers, *expires)
	}
	return cmd
}

func (c *cli) link(ctx context.Context, word string, viewers viewerFlags, expires time.Duration) error {
	if expires < time.Second || expires > playback.MaxAge {
		return usererr.Usagef("--expires %s: it must be 1s to %s", expires, playback.MaxAge)
	}
	return c.withExistingDatabase(ctx, func(db *dbconn.Database) error {
		return c.eachTask(ctx, db.Store, []string{word}, func(id store.ID) error {
			task, err := db.Store.Get(ctx, id)
			if err != nil {
				return err
			}
			v, err := c.playbackOf(ctx, db.Store, task, viewers, expires)
			if err != nil {
				return err
			}
			if v == nil {
				return &usererr.Error{Kind: usererr.NotFound, Text: shortID(id) + " is not published yet"}
			}
			return c.print(v, "%s", v.Embed)
		})
	})
}

// playbackOf returns how a task is watched, or nil if it is not published. Without the keys that it needs, it returns an error of
// the kind NotFound.
func (c *cli) playbackOf(
	ctx context.Context, st *store.Store, task store.Task, viewers viewerFlags, valid time.Duration,
) (*playback.Video, error) {
	if err := checkPublicURL(viewers.publicURL); err != nil {
		return nil, err
	}
	a := playback.Addresses{Keys: &playback.Keys{}, URL: viewers.publicURL, Valid: valid}
	if !video.IsPublic(task.Params) {
		var err error
		if *a.Keys, err = c.playbackKeys(viewers.keys); err != nil {
			return nil, err
		}
	}
	found, err := a.Find(ctx, st, task)
	return found[task.ID], err
}

// playbackKeys reads the keys of the daemon. It creates none: a daemon would not know them.
func (c *cli) playbackKeys(file string) (playback.Keys, error) {
	if file == "" {
		data, _, err := c.Directories()
		if err != nil {
			return playback.Keys{}, err
		}
		file = daemon.PlaybackKeysFile(data)
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return playback.Keys{}, &usererr.Error{
			Kind: usererr.NotFound, Text: "there are no keys in " + usererr.Printable(file),
			Hint: "cuelight serve --listen creates them; --playback-keys names another file",
		}
	}
	keys, err := playback.LoadKeys(file)
	if err != nil {
		return keys, usererr.Usagef("%v", err)
	}
	return keys, nil
}
