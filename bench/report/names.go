package report

import (
	"strconv"
	"strings"
)

// labels are what people call contestants. Others are called by their word.
var labels = map[string]string{
	ours:              "Cuelight",
	floor:             "floor (bare SQL)",
	"river_tx":        "River, in the transaction",
	"river_fast":      "River, outside of it",
	"river_default":   "River, default cooldown",
	"graphile":        "Graphile Worker",
	"dbos":            "DBOS",
	"pgboss":          "pg-boss",
	"polling_5s":      "polling every 5 s",
	"polling_1s":      "polling every 1 s",
	"ffmpeg_bare":     "the same ffmpeg, bare",
	"ffmpeg_per_rung": "one ffmpeg per rung",
}

func label(contestant string) string {
	if l, ok := labels[contestant]; ok {
		return l
	}
	return contestant
}

// scenarios are what people call what was measured. Others are called by their
// word.
var scenarios = map[string]string{
	"commit":      "one commit",
	"commits5":    "five dependent commits",
	"notify":      "NOTIFY → LISTEN",
	"wake_submit": "submitted → first stage begins",
	"hop":         "work ends → next stage begins",
	"hop_commit":  "completed → next stage begins",
	"hop_other":   "completed → next stage begins in another process",
	"e2e":         "one task through the five stages",
	"rate":        "at offered rates",
	"drain":       "waiting tasks drained",
	"processes":   "several processes",
	"work20ms":    "20 ms of work per stage",
	"order":       "later tasks that began first, behind one slot",
	"grown":       "finished tasks in the table",
	"held":        "a snapshot elsewhere holds back vacuum",
	"size":        "size per million tasks",
	"bulk":        "many tasks changed by one statement",
	"idle_daemon": "a daemon with nothing to do",
	"notifies":    "notifications at full load",
	"transcode":   "transcode",
}

func scenario(name string) string {
	if s, ok := scenarios[name]; ok {
		return s
	}
	return name
}

// cases are those that do not explain themselves.
var cases = map[string]string{
	"held":        "with a snapshot held",
	"free":        "without",
	"tight":       "one after the other",
	"table_mib":   "table",
	"index_mib":   "indexes",
	"history_mib": "history, with its index",
	"outbox_mib":  "outbox, with its index",
	"cpu":         "CPU",
}

// said is a case as people say it: of "finished=100000" it is "100k finished".
func caseLabel(of string) string {
	parts := strings.Split(of, ",")
	for i, part := range parts {
		name, value, ok := strings.Cut(part, "=")
		switch {
		case cases[part] != "":
			parts[i] = cases[part]
		case ok:
			parts[i] = told(strings.ReplaceAll(name, "_", " "), value)
		}
	}
	return strings.Join(parts, ", ")
}

func told(name, value string) string {
	n, err := strconv.ParseFloat(value, 64)
	switch {
	case err != nil:
		return name + " " + value
	case n == 1:
		return "1 " + strings.NewReplacer("processes", "process", "tasks", "task", "slots", "slot").Replace(name)
	}
	return count(n) + " " + name
}
