package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/media/captions"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

func (c *cli) captionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "captions", Short: "Attach captions and chapters to a video, or remove them",
		Long: `Captions attaches files with subtitles, and one with chapters, to a video, lists them
and removes them. The video is published again with what is attached; nothing is
transcoded. Text subtitles and chapters of the source need no file: they are published
anyway.`,
	}
	c.onlySubcommands(cmd)
	cmd.AddCommand(c.captionsAddCommand(), c.captionsListCommand(), c.captionsRemoveCommand())
	return cmd
}

func (c *cli) captionsAddCommand() *cobra.Command {
	var f attached.File
	cmd := &cobra.Command{
		Use:   "add ID FILE",
		Short: "Attach a file with subtitles or chapters to a video",
		Long: `Add attaches a file with subtitles: ` + strings.Join(captions.Extensions, " ") + `.
Its times count from the start of the video. A file that is not in Unicode is read in
the encoding that is usual for its language. The language, and whether it is forced, sdh
or default, can be in the name of the file.

A file with chapters is WebVTT, or has lines of a time and a title, such as
"01:30 The harbour". Its chapters replace those of the source, and those of a file that
was attached before. Its name ends with .chapters.vtt or .chapters.txt, or --chapters is
given.

  cuelight captions add 5f9c41ab film.de.srt
  cuelight captions add 5f9c41ab film.vtt --language en --sdh
  cuelight captions add 5f9c41ab film.chapters.txt`,
		Args: arguments(2, 2, "ID and FILE"),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Language, "language", "", "language of the text, such as de or pt-BR (default: that in the name of the file)")
	flags.StringVar(&f.Name, "name", "", "name in the menu of players (default: the language in its own words)")
	flags.BoolVar(&f.Default, "default", false, "show it unless the viewer chose otherwise")
	flags.BoolVar(&f.Forced, "forced", false, "it has only what every viewer must read, such as signs")
	flags.BoolVar(&f.SDH, "sdh", false, "it also describes sounds, for viewers who do not hear them")
	flags.BoolVar(&f.Chapters, "chapters", false, "it has chapters instead of subtitles")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.addCaptions(cmd.Context(), args[0], args[1], f)
	}
	return cmd
}

func (c *cli) addCaptions(ctx context.Context, word, file string, f attached.File) error {
	given := captionsFile{path: file, File: f}
	if err := given.read(); err != nil {
		return err
	}
	return c.withDaemonDatabase(ctx, func(db *dbconn.Database) error {
		return c.eachTask(ctx, db.Store, []string{word}, func(task store.ID) error {
			added, err := given.attach(ctx, c.actions(db), task)
			if err != nil {
				return err
			}
			return c.print(added, "%s: attached %s; the video is published again", shortID(added.ID), added)
		})
	})
}

// captionsFile is a file with captions that was given, and what is known of it.
type captionsFile struct {
	attached.File
	path string
	data []byte
}

func (c *captionsFile) read() error {
	path, err := filepath.EvalSymlinks(c.path)
	if err == nil {
		c.data, err = attached.Read(path)
	}
	if err == nil {
		err = attached.Check(c.path, c.data, &c.File)
	}
	return c.explain(err)
}

// captionsFlag is the flag --captions.
type captionsFlag []string

func (c *captionsFlag) add(f *pflag.FlagSet) {
	f.StringArrayVar((*[]string)(c), "captions", nil,
		"file to publish with the video: subtitles with the language in its name, film.de.srt, or film.chapters.txt; repeatable")
}

// read reads the files, which are for the only source.
func (c captionsFlag) read(sources []string) ([]captionsFile, error) {
	if len(c) > 0 && len(sources) > 1 {
		return nil, usererr.Usagef("--captions is for one video, but there are %d sources", len(sources))
	}
	var files []captionsFile
	for _, path := range c {
		f := captionsFile{path: path}
		if err := f.read(); err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// attachAll attaches files to the only submitted task. A task that existed before has them already.
func attachAll(ctx context.Context, do ops.Actions, files []captionsFile, r store.Receipt) error {
	for _, f := range files {
		if r.Existed {
			break
		}
		if _, err := f.attach(ctx, do, r.ID); err != nil {
			return err
		}
	}
	return nil
}

func (c *captionsFile) attach(ctx context.Context, do ops.Actions, task store.ID) (attached.File, error) {
	added, err := do.AddCaptions(ctx, task, filepath.Base(c.path), c.data, c.File)
	return added, c.explain(err)
}

func (c *captionsFile) explain(err error) error {
	if wrong, ok := errors.AsType[*attached.InvalidError](err); ok {
		return usererr.Usagef("%s: %s", usererr.Printable(c.path), usererr.Printable(wrong.Error()))
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return usererr.Usagef("cannot read %s: %s", usererr.Printable(c.path), usererr.SystemMessage(err))
	}
	return err
}

func (c *cli) captionsListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list ID", Short: "List the captions and chapters that are attached to a video", Args: exactlyOne("ID"),
		Long: `List lists the captions and the chapters that are attached to a video, the oldest
first. Those of its source are in cuelight show.`,
	}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		return c.withExistingDatabase(ctx, func(db *dbconn.Database) error {
			return c.eachTask(ctx, db.Store, args, func(task store.ID) error {
				all, err := attached.New(db.Store).List(ctx, task)
				if err != nil {
					return err
				}
				return printList(c, all, "attached captions", "ID LANGUAGE NAME KIND CUES ADDED BY", captionsRow)
			})
		})
	}
	return cmd
}

func captionsRow(f attached.File) []string {
	var kinds []string
	for _, k := range []struct {
		is   bool
		name string
	}{{f.Default, "default"}, {f.Forced, "forced"}, {f.SDH, "sdh"}, {f.Chapters, "chapters"}} {
		if k.is {
			kinds = append(kinds, k.name)
		}
	}
	kind, name := cmp.Or(strings.Join(kinds, ","), "-"), cmp.Or(usererr.Printable(f.Name), "-")
	return []string{
		shortID(f.ID), cmp.Or(f.Language, "-"), name, kind, fmt.Sprint(f.Cues), age(f.AddedAt) + " ago", usererr.Printable(f.AddedBy),
	}
}

func (c *cli) captionsRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "remove ID CAPTIONS", Short: "Remove attached captions or chapters from a video", Args: arguments(2, 2, "ID and CAPTIONS"),
		Long: `Remove removes captions or chapters that were attached to a video, by their id or its
end, as cuelight captions list prints it. The video is published again without them; with
the chapters of its source, if these were replaced.`,
	}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.removeCaptions(cmd.Context(), args[0], args[1])
	}
	return cmd
}

func (c *cli) removeCaptions(ctx context.Context, word, which string) error {
	return c.withDaemonDatabase(ctx, func(db *dbconn.Database) error {
		return c.eachTask(ctx, db.Store, []string{word}, func(task store.ID) error {
			all, err := attached.New(db.Store).List(ctx, task)
			if err != nil {
				return err
			}
			all = slices.DeleteFunc(all, func(f attached.File) bool { return !strings.HasSuffix(f.ID.String(), strings.ToLower(which)) })
			switch len(all) {
			case 0:
				return &usererr.Error{
					Kind: usererr.NotFound, Text: "no captions with the id " + usererr.Printable(which) + " are attached to the task",
					Hint: "cuelight captions list " + shortID(task) + " lists them",
				}
			case 1:
			default:
				return usererr.Usagef("%s is the end of %d ids; give more of it", usererr.Printable(which), len(all))
			}
			if err := c.actions(db).RemoveCaptions(ctx, task, all[0].ID); err != nil {
				return err
			}
			return c.print(all[0], "%s: removed; the video is published again", shortID(all[0].ID))
		})
	})
}
