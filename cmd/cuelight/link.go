package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

const playbackKeysUsage = "file with the keys of addresses for viewers, one in each line (default DATA-DIR/secrets/playback)"

type linkOptions struct {
	keys, address string
	expires       time.Duration
}

func (c *cli) linkCommand() *cobra.Command {
	var o linkOptions
	cmd := &cobra.Command{
		Use: "link ID", Short: "Print an address with which anybody can watch a video", Args: exactlyOne("ID"),
		Long: `Link prints an address of a published video that is valid for a time, for everybody
who has it. A daemon that serves the video with --listen, and has the same keys, checks
it. It plays all versions of the video that are published meanwhile. The address of a
public video (cuelight visibility) has no time, and needs no keys.

  cuelight link 5f9c41ab --expires 168h --address https://media.example`,
	}
	f := cmd.Flags()
	f.DurationVar(&o.expires, "expires", 24*time.Hour, "how long the address is valid at least")
	f.StringVar(&o.address, "address", "", "public address of the daemon, such as https://media.example (default: the path alone)")
	f.StringVar(&o.keys, "playback-keys", "", playbackKeysUsage)
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.link(cmd.Context(), args[0], o) }
	return cmd
}

func (c *cli) link(ctx context.Context, word string, o linkOptions) error {
	if o.expires < time.Second || o.expires > playback.MaxAge {
		return usererr.Usagef("--expires %s: it must be 1s to %s", o.expires, playback.MaxAge)
	}
	if u, err := url.Parse(o.address); err != nil || o.address != "" && (u.Scheme == "" || u.Host == "") {
		return usererr.Usagef("--address %s: it must be an address such as https://media.example", usererr.Printable(o.address))
	}
	return c.withExistingDatabase(ctx, func(db *dbconn.Database) error {
		return c.eachTask(ctx, db.Store, []string{word}, func(task store.ID) error {
			var published video.Publish
			raw, err := db.Store.Result(ctx, task, "publish")
			if errors.Is(err, store.ErrNotFound) {
				return &usererr.Error{Kind: usererr.NotFound, Text: shortID(task) + " is not published yet"}
			}
			if err == nil {
				err = json.Unmarshal(raw, &published)
			}
			if err != nil {
				return err
			}
			token, expires, err := c.playbackToken(ctx, db.Store, task, o)
			if err != nil {
				return err
			}
			address := func(name string) string {
				return strings.TrimSuffix(o.address, "/") + web.PlaybackPath("", token, task, name)
			}
			dash := ""
			if published.Manifest != "" {
				dash = address("manifest.mpd")
			}
			return c.print(struct {
				HLS       string    `json:"hls"`
				DASH      string    `json:"dash,omitempty"`
				ExpiresAt time.Time `json:"expires_at,omitzero"`
			}{address("master.m3u8"), dash, expires}, "%s", address("master.m3u8"))
		})
	})
}

// playbackToken returns the token of an address for viewers, and when it expires. Of a public video both are empty.
func (c *cli) playbackToken(
	ctx context.Context, st *store.Store, task store.ID, o linkOptions,
) (token string, expires time.Time, err error) {
	params, err := st.Params(ctx, task)
	if err != nil || video.IsPublic(params) {
		return "", time.Time{}, err
	}
	keys, err := c.playbackKeys(o.keys)
	if err != nil {
		return "", time.Time{}, err
	}
	expires = playback.Expiry(time.Now(), o.expires)
	return keys.Sign(task, expires), expires, nil
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
