package main

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// measuredAtOnce is how many videos one question to the database is about.
const measuredAtOnce = 500

// usageMeasure adds up the sizes of videos. One goroutine uses it.
type usageMeasure struct {
	usage
	st        *store.Store
	limit     int
	batch     []video.TaskSizes
	data      video.DataSizes
	published video.PublishedSizes
	freed     [5][]videoCount // by the settings below, for each age
}

// The settings that free files, in usageMeasure.freed.
const (
	freedFinished = iota
	freedDead
	freedSourceCopies
	freedOld
	freedDeleted
)

// measure measures everything.
func (c *cli) measure(ctx context.Context, db *dbconn.Database, config video.Config, limit int) (usage, error) {
	m := &usageMeasure{st: db.Store, limit: limit}
	for i := range m.freed {
		m.freed[i] = make([]videoCount, len(duAges))
	}
	err := config.MeasureTasks(ctx, nil, func(s video.TaskSizes) error {
		m.batch = append(m.batch, s)
		if len(m.batch) < measuredAtOnce {
			return nil
		}
		return m.addBatch(ctx)
	})
	if err == nil {
		err = m.addBatch(ctx)
	}
	if err != nil {
		return m.usage, err
	}
	m.keepLargest()
	for i := range m.Largest {
		if m.Largest[i].Title, err = titleOfAny(ctx, m.st, m.Largest[i].Task); err != nil {
			return m.usage, err
		}
	}
	if m.Locations, err = m.locations(ctx, config); err != nil {
		return m.usage, err
	}
	if m.Tables, err = report.ReadTableSizes(ctx, m.st); err != nil {
		return m.usage, err
	}
	rows, err := report.CountPrunable(ctx, m.st, duAges)
	if err != nil {
		return m.usage, err
	}
	m.Retention = c.freedBySettings(m.freed, rows)
	return m.usage, nil
}

// addBatch adds the sizes of some videos, after asking the database how they ended.
func (m *usageMeasure) addBatch(ctx context.Context) error {
	ids := make([]store.ID, len(m.batch))
	for i, s := range m.batch {
		ids[i] = s.Task
	}
	ends, err := m.st.TaskEnds(ctx, ids)
	if err != nil {
		return err
	}
	endOf := make(map[store.ID]store.TaskEnd, len(ends))
	for _, e := range ends {
		endOf[e.Task] = e
	}
	for _, s := range m.batch {
		e, isKnown := endOf[s.Task]
		v := measuredVideo{TaskSizes: s, TotalBytes: s.Total(), State: stateUnknown}
		if isKnown {
			v.State = endState(e)
		}
		m.add(v, e)
	}
	m.batch = m.batch[:0]
	m.keepLargest()
	return nil
}

func (m *usageMeasure) add(v measuredVideo, e store.TaskEnd) {
	m.data, m.published = m.data.Add(v.Data), m.published.Add(v.Published)
	m.Largest = append(m.Largest, v)
	switch v.State {
	case stateDeleted:
		m.Deleted.add(v.TotalBytes)
	case statePurging:
		m.Purging.add(v.TotalBytes)
	case stateUnknown:
		m.Unknown.add(v.TotalBytes)
	}
	for i, age := range duAges {
		add := func(setting int, isFreed bool, bytes int64) {
			if isFreed {
				m.freed[setting][i].add(bytes)
			}
		}
		add(freedFinished, e.IsPrunedBy(store.PruneOptions{Finished: age}), v.FreedData)
		add(freedDead, e.IsPrunedBy(store.PruneOptions{Dead: age}), v.FreedData)
		add(freedSourceCopies, e.Status == store.StatusCompleted && e.Ago > age && v.FreedData > 0, v.FreedData)
		add(freedOld, v.FreedReplaced(age) > 0, v.FreedReplaced(age))
		add(freedDeleted, v.State == stateDeleted && e.Ago > age, v.FreedAll)
	}
}

// keepLargest keeps only the largest videos.
func (m *usageMeasure) keepLargest() {
	slices.SortFunc(m.Largest, func(x, y measuredVideo) int {
		return cmp.Or(cmp.Compare(y.TotalBytes, x.TotalBytes), slices.Compare(y.Task[:], x.Task[:]))
	})
	m.Largest = m.Largest[:min(len(m.Largest), m.limit)]
}

// locations returns the sizes by location and kind.
func (m *usageMeasure) locations(ctx context.Context, config video.Config) ([]usedLocation, error) {
	shared, err := config.MeasureShared(ctx)
	if err != nil {
		return nil, err
	}
	data := usedLocation{Name: string(video.DataContent), Files: []usedFiles{
		{"copies of sources", m.data.Source}, {"other results", m.data.Results}, {"unfinished", m.data.Unfinished},
		{"unknown names", m.data.Other},
	}}
	data.setDisk(config.DataLocation())
	local := &data
	found := make([]usedLocation, 0, 3)
	if config.Bucket != nil {
		data.Files = append(data.Files, usedFiles{"received sources", shared.Sources})
		local = &usedLocation{Name: "local", Files: []usedFiles{{"copies of results", shared.Copies}}}
		local.setDisk(video.Location{Dir: config.DataDir})
	}
	for _, of := range []struct{ kind, dir string }{{"uploads", upload.DirName}, {"private database", dbconn.PrivateDir}} {
		bytes, err := diskspace.Used(ctx, filepath.Join(config.DataDir, of.dir))
		if err != nil {
			return nil, err
		}
		local.Files = append(local.Files, usedFiles{of.kind, bytes})
	}
	published := usedLocation{Name: string(video.PublishContent), Files: []usedFiles{
		{"published", m.published.Served}, {"replaced versions", m.published.Replaced}, {"unfinished", m.published.Unfinished},
		{"unknown names", m.published.Other},
	}}
	published.setDisk(config.PublishLocation())
	found = append(found, data, published)
	if local != &data {
		found = append(found, *local)
	}
	return found, nil
}

// setDisk sets the address and, of a directory, the space of its disk.
func (l *usedLocation) setDisk(at video.Location) {
	l.Address = at.String()
	if at.Bucket != nil {
		return
	}
	if free, size, err := diskspace.Free(at.Dir); err == nil {
		l.FreeBytes, l.DiskBytes = &free, &size
	}
}

// freedBySettings returns a row per flag of serve.
func (c *cli) freedBySettings(files [5][]videoCount, rows report.PrunableRows) []freedBySetting {
	counts := func(videos []videoCount) (rows []report.RowCount) {
		for _, v := range videos {
			rows = append(rows, report.RowCount{Rows: v.Videos})
		}
		return rows
	}
	flags := c.serveCommand().Flags()
	var all []freedBySetting
	for _, s := range []struct {
		flag, counts string
		rows         []report.RowCount
		files        []videoCount
	}{
		{"keep-finished", "videos", rows.Finished, files[freedFinished]},
		{"keep-dead", "videos", rows.Dead, files[freedDead]},
		{"keep-source-copies", "videos", counts(files[freedSourceCopies]), files[freedSourceCopies]},
		{"keep-old", "videos", counts(files[freedOld]), files[freedOld]},
		{"keep-deleted", "videos", rows.Deleted, files[freedDeleted]},
		{"keep-events", "rows", rows.Events, nil},
		{"keep-workers", "workers", rows.Workers, nil},
		{"keep-audit", "entries", rows.Audit, nil},
		{"keep-deliveries", "deliveries", rows.Deliveries, nil},
		{"keep-dead-deliveries", "deliveries", rows.DeadDeliveries, nil},
	} {
		row := freedBySetting{Setting: s.flag, Default: flags.Lookup(s.flag).DefValue, Counts: s.counts}
		for i, name := range duAgeNames {
			f := freed{Keep: name, Count: s.rows[i].Rows, Estimated: s.rows[i].Estimated}
			if s.files != nil {
				f.Bytes = &s.files[i].Bytes
			}
			row.Frees = append(row.Frees, f)
		}
		all = append(all, row)
	}
	return all
}
