package main

import (
	"fmt"
	"strings"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
)

// printUsage prints the tables of du.
func (c *cli) printUsage(u usage) error {
	for _, write := range []func(usage) error{c.printLocations, c.printLargest, c.printRetention} {
		if err := write(u); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) printLocations(u usage) error {
	var b strings.Builder
	t := &console.Table{Out: c.out, Header: []string{"LOCATION", "FILES", "SIZE"}}
	for _, l := range u.Locations {
		fmt.Fprintf(&b, "%-8s  %s", l.Name, usererr.Printable(l.Address))
		switch {
		case l.FreeBytes != nil:
			fmt.Fprintf(&b, " (%s free of %s)", console.Size(*l.FreeBytes), console.Size(*l.DiskBytes))
		case !video.IsBucketAddress(l.Address):
			b.WriteString(" (does not exist)")
		}
		b.WriteString("\n")
		for _, f := range l.Files {
			if f.Bytes > 0 || f.Kind != "unknown names" {
				t.Add(l.Name, f.Kind, console.Size(f.Bytes))
			}
		}
	}
	for _, of := range []struct {
		name  string
		bytes int64
	}{
		{"tasks", u.Tables.Tasks}, {"history", u.Tables.History}, {"events", u.Tables.Events},
		{"deleted tasks", u.Tables.DeletedTasks}, {"webhook deliveries", u.Tables.Deliveries}, {"other tables", u.Tables.Other},
	} {
		t.Add("database", of.name, console.Size(of.bytes))
	}
	b.WriteString("\n")
	if _, err := fmt.Fprint(c.out, b.String()); err != nil {
		return err
	}
	if err := t.Write(); err != nil {
		return err
	}
	return c.printGroups(u)
}

// printGroups prints what the deleted videos take, which is part of the sizes above.
func (c *cli) printGroups(u usage) error {
	var b strings.Builder
	for _, of := range []struct {
		videoCount
		text string
	}{
		{u.Deleted, "deleted, can be restored"}, {u.Purging, "being purged"}, {u.Unknown, "not in the database"},
	} {
		if of.Videos > 0 {
			fmt.Fprintf(&b, "%s: %s, %s of the above\n", of.text, console.Plural(int(of.Videos), "video"), console.Size(of.Bytes))
		}
	}
	if b.Len() == 0 {
		return nil
	}
	_, err := fmt.Fprint(c.out, "\n"+b.String())
	return err
}

func (c *cli) printLargest(u usage) error {
	if len(u.Largest) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(c.out); err != nil {
		return err
	}
	return c.printVideos(u.Largest)
}

// printVideos prints a row per video. The columns after SIZE add up to it.
func (c *cli) printVideos(all []measuredVideo) error {
	const columns = "ID STATUS SIZE PUBLISHED REPLACED SOURCE RESULTS OTHER VIDEO"
	return printList(c, all, "videos", columns, func(v measuredVideo) []string {
		id := v.Task.String()
		if c.out.IsTerminal {
			id = shortID(v.Task)
		}
		other := v.Data.Unfinished + v.Data.Other + v.Published.Unfinished + v.Published.Other
		return []string{
			id, v.State, console.Size(v.TotalBytes), sizeOrNone(v.Published.Served), sizeOrNone(v.Published.Replaced),
			sizeOrNone(v.Data.Source), sizeOrNone(v.Data.Results), sizeOrNone(other), v.Title,
		}
	})
}

func sizeOrNone(bytes int64) string {
	if bytes == 0 {
		return "-"
	}
	return console.Size(bytes)
}

func (c *cli) printRetention(u usage) error {
	t := &console.Table{Out: c.out, Header: append([]string{"WOULD FREE NOW", "DEFAULT", "COUNTS"}, duAgeNames...)}
	for _, s := range u.Retention {
		byDefault := s.Default
		if byDefault == "0" {
			byDefault = "for ever"
		}
		cells := []string{"--" + s.Setting, byDefault, s.Counts}
		for _, f := range s.Frees {
			cells = append(cells, f.String())
		}
		t.Add(cells...)
	}
	if _, err := fmt.Fprintln(c.out); err != nil {
		return err
	}
	return t.Write()
}

// String returns the number, and the size of files.
func (f freed) String() string {
	text := fmt.Sprint(f.Count)
	if f.Estimated {
		text = approximate(f.Count)
	}
	if f.Bytes != nil && (*f.Bytes > 0 || f.Count > 0) {
		text += " (" + console.Size(*f.Bytes) + ")"
	}
	return text
}

// approximate returns an estimate with two digits: ~1.2M, ~950k.
func approximate(n int64) string {
	unit := int64(1)
	for n >= 100*unit {
		unit *= 10
	}
	n = (n + unit/2) / unit * unit
	switch {
	case n >= 1e6:
		return fmt.Sprintf("~%gM", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("~%gk", float64(n)/1e3)
	}
	return fmt.Sprintf("~%d", n)
}
