package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/profiles"
	"github.com/cuelight/cuelight/internal/usererr"
)

const profilesHelp = `Profiles lists the profiles: named settings that say how videos are made. A task gets
those of cuelight submit --profile NAME when it is submitted; what its --params set
themselves goes first. Later changes of the profile change later submissions only.

The profile "default" always exists. Once it is redefined, it applies to all
submissions that name no profile. Tasks that are inserted with SQL get no profile.`

func (c *cli) profilesCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "profiles", Short: "List and change the profiles of videos", Long: profilesHelp}
	c.onlySubcommands(cmd) // refuses unknown ones
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.withExistingDatabase(cmd.Context(), func(db *dbconn.Database) error {
			all, err := profiles.New(db.Store).List(cmd.Context())
			if err != nil {
				return err
			}
			return printList(c, all, "profiles", "PROFILE CHANGED BY SETTINGS", profileRow)
		})
	}
	cmd.AddCommand(c.profilesShowCommand(), c.profilesSetCommand(), c.profilesRemoveCommand())
	return cmd
}

func profileRow(p profiles.Profile) []string {
	if p.IsBuiltIn() {
		return []string{p.Name, "built in", "-", string(p.Definition)}
	}
	return []string{p.Name, age(*p.UpdatedAt) + " ago", usererr.Printable(p.UpdatedBy), usererr.Printable(string(p.Definition))}
}

func (c *cli) profilesShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Print the settings of a profile",
		Long:  "Show prints the settings of a profile as JSON, which cuelight profiles set reads.",
		Args:  exactlyOne("NAME"),
	}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.withExistingDatabase(cmd.Context(), func(db *dbconn.Database) error {
			p, err := profiles.New(db.Store).Get(cmd.Context(), args[0])
			if err != nil {
				return explainProfile(err)
			}
			return c.print(p, "%s", p.Definition)
		})
	}
	return cmd
}

const profilesSetHelp = `Set creates a profile, or replaces all settings of one: by those of a file with a JSON
object, or of standard input (-), or by those of the flags:

  cuelight profiles set mobile --renditions 480p,240p --quality 28 --audio-bitrate 96k
  cuelight profiles show mobile | cuelight profiles set mobile-2 -

docs/profiles.md describes the members of the object.`

func (c *cli) profilesSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "set NAME [FILE|-]", Short: "Create or replace a profile", Long: profilesSetHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 {
				return usererr.Usagef("%s needs a NAME, and at most one FILE", cmd.CommandPath())
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.Var(new(heights), "renditions", "heights to make, such as 1080p,720p (default all up to the source's)")
	f.StringSlice("codecs", nil, "codecs of further renditions from 720p on, next to H.264: hevc,av1")
	f.Bool("hdr", false, "keep the dynamic range of HDR sources in these codecs")
	f.Bool("copy", false, "copy H.264 of sources that fits a size, instead of encoding it")
	f.String("quality", "", "CRF, 15 (best) to 40, or auto (default that of the worker)")
	f.String("preset", "", "preset of x264, such as slow (default that of the worker)")
	f.String("audio-bitrate", "", "bitrate of the sound, 32k to 320k (default 128k)")
	f.String("loudness", "", "loudness of the sound in LUFS, -40 to -5 (default that of the source)")
	f.Bool("surround", false, "make a rendition of the sound in 5.1, too, if the source has so many channels")
	f.String("default-audio", "", "language or number of the audio stream that players begin with (default that of the source)")
	f.Bool("watch-early", false, "publish a small size first, as soon as it is complete")
	f.String("failed-rendition", "", "what happens if a size cannot be made: wait, or skip (default wait)")
	f.String("visibility", "", "who can watch without a key: public, or signed (default signed)")
	f.String("poster", "", "time of the poster in seconds, or 25% of the duration (default a frame with detail)")
	f.String("mp4", "", "height of the size that is also one MP4 file, such as 720p, or max (default none)")
	f.String("preview", "", "time of a silent clip for lists in seconds, or 25% of the duration (default none)")
	f.Var(new(labels), "requires", "label or encoder that the worker of the transcode must have; repeatable")
	f.Var(new(labels), "prefers", "label or encoder that it should have; repeatable")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		definition, err := c.profileDefinition(cmd, args[1:])
		if err != nil {
			return err
		}
		return c.withDaemonDatabase(cmd.Context(), func(db *dbconn.Database) error {
			p, err := c.actions(db).SetProfile(cmd.Context(), args[0], definition)
			if err != nil {
				return err
			}
			return c.print(p, "%s: %s", p.Name, p.Definition)
		})
	}
	return cmd
}

// profileDefinition returns the definition of a file or of the flags.
func (c *cli) profileDefinition(cmd *cobra.Command, files []string) (json.RawMessage, error) {
	members := profileFlags(cmd.Flags())
	switch {
	case len(members) > 0 && len(files) > 0:
		return nil, usererr.Usagef("the settings are those of a file, or those of flags, not both")
	case len(members) > 0:
		return json.Marshal(members)
	case len(files) == 0:
		e := usererr.Usagef("%s needs a FILE, - for standard input, or flags such as --renditions", cmd.CommandPath())
		e.Hint = "usage: " + cmd.UseLine()
		return nil, e
	}
	return c.readDefinition(files[0])
}

// profileFlags returns the members that the given flags set.
func profileFlags(f *pflag.FlagSet) map[string]any {
	members, audio := make(map[string]any), make(map[string]any)
	f.Visit(func(flag *pflag.Flag) {
		switch flag.Name {
		case "renditions", "requires", "prefers":
			members[flag.Name] = flag.Value
		case "codecs":
			members["codecs"], _ = f.GetStringSlice("codecs") // it is one
		case "quality":
			members[flag.Name] = jsonValue(flag)
		case "watch-early", "hdr", "copy":
			members[strings.ReplaceAll(flag.Name, "-", "_")] = flag.Value.String() == "true"
		case "preset", "poster", "mp4", "preview", "failed-rendition", "visibility":
			members[strings.ReplaceAll(flag.Name, "-", "_")] = flag.Value.String()
		case "audio-bitrate":
			audio["bitrate"] = flag.Value.String()
		case "surround":
			audio["surround"] = flag.Value.String() == "true"
		case "default-audio":
			audio["default"] = flag.Value.String()
		case "loudness":
			audio["loudness"] = jsonValue(flag)
		}
	})
	if len(audio) > 0 {
		members["audio"] = audio
	}
	return members
}

// jsonValue is the value of a flag: a number, or the text if it is none.
func jsonValue(flag *pflag.Flag) any {
	if text := flag.Value.String(); json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return flag.Value.String()
}

// maxDefinition is the size of a profile's file in bytes.
const maxDefinition = 64 << 10

func (c *cli) readDefinition(file string) (definition json.RawMessage, err error) {
	in := io.NopCloser(c.in)
	if file != "-" {
		if in, err = os.Open(file); err != nil {
			return nil, &usererr.Error{Kind: usererr.Usage, Text: err.Error()}
		}
	}
	defer in.Close()
	if definition, err = io.ReadAll(io.LimitReader(in, maxDefinition+1)); err != nil {
		return nil, fmt.Errorf("read profile: %w", err)
	}
	if len(definition) > maxDefinition {
		return nil, usererr.Usagef("the profile has more than %d bytes", maxDefinition)
	}
	return definition, nil
}

func (c *cli) profilesRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Delete a profile",
		Long: `Remove deletes a profile. Tasks that have its settings keep them. The profile "default"
becomes the built-in one again.`,
		Args: exactlyOne("NAME"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.withDaemonDatabase(cmd.Context(), func(db *dbconn.Database) error {
			if err := c.removeProfile(cmd.Context(), db, args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.out, "%s: removed\n", args[0])
			return err
		})
	}
	return cmd
}

func (c *cli) removeProfile(ctx context.Context, db *dbconn.Database, name string) error {
	return explainProfile(c.actions(db).RemoveProfile(ctx, name))
}

// explainProfile translates the error of a name that no profile has.
func explainProfile(err error) error {
	if notFound, ok := errors.AsType[*profiles.NotFoundError](err); ok {
		return &usererr.Error{Kind: usererr.NotFound, Text: notFound.Error(), Hint: "cuelight profiles lists them"}
	}
	return err
}
