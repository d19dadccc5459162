package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

const duHelp = `Du measures the files of videos in both locations, and the tables. It lists the largest
videos, and what each setting of "cuelight serve" would free now if it were 30 days, 90
days or a year. With IDs it measures only these videos. It changes nothing, and may run
next to daemons.

A file with several hard links counts once, as published if one of its links is. The
copies of sources and the results of a video are freed only as far as they have no other
link: renditions usually have one in the published video. The published files of videos
stay until the videos are deleted, whatever the settings.

Sizes are those of files; a file system that compresses or shares blocks uses less. In a
bucket they are those of current objects, and take about three requests per video and
1000 files. Counts with "~" are estimates from a sample of a large table, usually less than
10% off. New rows use the space of deleted ones again; the disk does not get it back.`

func (c *cli) duCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "du [ID...]",
		Short: "Show the disk usage of videos, and what each retention would free",
		Long:  duHelp,
	}
	c.publishDirFlag(cmd.Flags())
	limit := cmd.Flags().Int("limit", 10, "how many of the largest videos are listed")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *limit < 0 {
			return invalidFlag("limit", *limit, "0 or more")
		}
		err := c.withExistingDatabase(cmd.Context(), func(db *dbconn.Database) error {
			config, err := c.measuredConfig(cmd.Context(), db.Store)
			if err != nil {
				return err
			}
			if len(args) > 0 {
				return c.duVideos(cmd.Context(), db.Store, config, args)
			}
			r, err := c.measure(cmd.Context(), db, config, *limit)
			if err != nil {
				return err
			}
			if c.json {
				return c.writeJSON(r)
			}
			return c.printUsage(r)
		})
		if len(args) > 0 {
			return err
		}
		return c.ignoreNotCreated(err)
	}
	return cmd
}

// measuredConfig returns a configuration with the locations, which must be those of the database's tasks.
func (c *cli) measuredConfig(ctx context.Context, st *store.Store) (config video.Config, err error) {
	if config.DataDir, config.PublishDir, err = c.Directories(); err != nil {
		return config, err
	}
	if err := c.openBuckets(&config); err != nil {
		return config, err
	}
	if err := daemon.CheckLocation(ctx, st, video.DataContent, config.DataLocation()); err != nil {
		return config, err
	}
	return config, daemon.CheckLocation(ctx, st, video.PublishContent, config.PublishLocation())
}

// measuredVideo is a video with the sizes of its files.
type measuredVideo struct {
	video.TaskSizes
	TotalBytes int64  `json:"total_bytes"`
	State      string `json:"state"` // its status; deleted, purging, or unknown if the database does not have it
	Title      string `json:"title"` // or its source
}

// duVideos measures the videos that words name.
func (c *cli) duVideos(ctx context.Context, st *store.Store, config video.Config, words []string) error {
	var all []measuredVideo
	err := c.each(ctx, words, func(word string) error {
		id, err := st.Find(ctx, strings.ToLower(word))
		if errors.Is(err, store.ErrNotFound) {
			if deleted, findErr := st.FindDeleted(ctx, strings.ToLower(word)); findErr == nil {
				id, err = deleted, nil
			}
		}
		if err != nil {
			return err
		}
		return config.MeasureTasks(ctx, []store.ID{id}, func(s video.TaskSizes) error {
			ends, err := st.TaskEnds(ctx, []store.ID{id})
			if err != nil {
				return err
			}
			v := measuredVideo{TaskSizes: s, TotalBytes: s.Total(), State: stateUnknown}
			for _, e := range ends {
				v.State = endState(e)
			}
			if v.State == stateUnknown && v.TotalBytes == 0 {
				return fmt.Errorf("%w: %s", store.ErrNotFound, id)
			}
			v.Title, err = titleOfAny(ctx, st, id)
			all = append(all, v)
			return err
		})
	})
	if len(all) == 0 {
		return err
	}
	return errors.Join(c.printVideos(all), err)
}

// The states of a video that are no status.
const (
	stateDeleted = "deleted"
	statePurging = "purging"
	stateUnknown = "unknown"
)

func endState(e store.TaskEnd) string {
	switch {
	case e.IsPurged:
		return statePurging
	case e.Status == "":
		return stateDeleted
	}
	return string(e.Status)
}

// titleOfAny returns the title of a task, also of a deleted one; empty for one that the database does not have.
func titleOfAny(ctx context.Context, st *store.Store, id store.ID) (string, error) {
	t, err := st.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		var d store.DeletedTask
		d, err = st.GetDeleted(ctx, id)
		t = store.Task{Source: d.Source, Params: d.Params}
	}
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	return titleOf(t), err
}

// usage is what du reports without IDs.
type usage struct {
	Locations []usedLocation `json:"locations"`
	// Deleted videos can be restored; the files of purging ones are being removed; unknown ones are not in the database:
	// their tasks were deleted by a retention.
	Deleted   videoCount        `json:"deleted"`
	Purging   videoCount        `json:"purging"`
	Unknown   videoCount        `json:"unknown"`
	Tables    report.TableSizes `json:"tables"`
	Largest   []measuredVideo   `json:"largest"`
	Retention []freedBySetting  `json:"retention"`
}

// usedLocation is a location, or the local directory of this host where a bucket has the data.
type usedLocation struct {
	Name      string      `json:"location"`
	Address   string      `json:"address"`
	FreeBytes *int64      `json:"free_bytes"` // of the disk; null for a bucket
	DiskBytes *int64      `json:"disk_bytes"`
	Files     []usedFiles `json:"files"`
}

// usedFiles are files of one kind.
type usedFiles struct {
	Kind  string `json:"kind"`
	Bytes int64  `json:"bytes"`
}

// videoCount is a number of videos and the size of their files.
type videoCount struct {
	Videos int64 `json:"videos"`
	Bytes  int64 `json:"bytes"`
}

func (v *videoCount) add(bytes int64) {
	v.Videos++
	v.Bytes += bytes
}

// freedBySetting is what a retention would free now, for each age.
type freedBySetting struct {
	Setting string  `json:"setting"`
	Default string  `json:"default"`
	Counts  string  `json:"counts"`
	Frees   []freed `json:"frees"`
}

type freed struct {
	Keep      string `json:"keep"`
	Count     int64  `json:"count"`
	Estimated bool   `json:"estimated"`
	Bytes     *int64 `json:"bytes"` // of files; null for a setting that removes only rows
}

// duAges are the ages for which du says what a retention would free.
var duAges = []time.Duration{30 * day, 90 * day, 365 * day}

var duAgeNames = []string{"30d", "90d", "1y"}
