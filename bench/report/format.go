package report

import (
	"math"
	"strconv"
	"strings"

	"github.com/cuelight/cuelight/bench/result"
)

// scenarioLabels are readable names of scenarios. Others appear under their own name.
var scenarioLabels = map[string]string{
	"commit":          "one commit",
	"commits5":        "five dependent commits",
	"notify":          "NOTIFY → LISTEN",
	"wake_submit":     "submitted → first stage starts",
	"hop":             "work ends → next stage starts",
	"hop_commit":      "completed → next stage starts",
	"hop_other":       "completed → next stage starts in another process",
	"e2e":             "one task through the five stages",
	"rate":            "at offered rates",
	"drain":           "waiting tasks drained",
	"cpu":             "processor time per task",
	"processes":       "several processes",
	"work20ms":        "20 ms of work per stage",
	"order":           "later tasks that started first, behind one slot",
	"grown":           "finished tasks in the table",
	"snapshot":        "a steady load, and a snapshot elsewhere that holds back vacuum",
	"snapshot_kept":   "the share of it that is completed in the same time",
	"size":            "size per million tasks",
	"bulk":            "many tasks changed by one statement",
	"idle_daemon":     "an idle daemon",
	"start":           "submitted → first stage starts, with the submission",
	"start_beyond":    "the median start, without two median HTTP round trips",
	"http":            "HTTP round trip to the coordinator",
	"remote_drain":    "waiting tasks drained, remote and local",
	"waiting_workers": "a daemon with waiting remote workers",
	"notifies":        "notifications under full load",
	"transcode":       "transcode",
}

// caseLabels are readable names of cases.
var caseLabels = map[string]string{
	"before":      "before the snapshot",
	"held":        "with a snapshot held",
	"after":       "after the snapshot",
	"tight":       "without pauses",
	"table_mib":   "table",
	"index_mib":   "indexes",
	"steps_mib":   "steps, with their indexes",
	"history_mib": "history, with its index",
	"outbox_mib":  "outbox, with its index",
	"cpu":         "CPU",
}

func scenarioLabel(scenario string) string { return orKey(scenarioLabels, scenario) }

func orKey(labels map[string]string, key string) string {
	if l, ok := labels[key]; ok {
		return l
	}
	return key
}

// caseLabel returns a readable case: "100k finished" for "finished=100000".
func caseLabel(caseName string) string {
	parts := strings.Split(caseName, ",")
	for i, part := range parts {
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			parts[i] = orKey(caseLabels, part)
			continue
		}
		name = strings.ReplaceAll(name, "_", " ")
		n, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil:
			parts[i] = name + " " + value
		case n == 1:
			parts[i] = "1 " + strings.NewReplacer("processes", "process", "tasks", "task", "slots", "slot").Replace(name)
		default:
			parts[i] = formatCount(n) + " " + name
		}
	}
	return strings.Join(parts, ", ")
}

// caseNumber returns the number of a case, such as "100k" for "finished=100000".
func caseNumber(caseName string) string {
	number, _, _ := strings.Cut(caseLabel(caseName), " ")
	return number
}

// formatNumber writes three significant digits, or all before the point, with commas between
// thousands.
func formatNumber(v float64) string {
	size, places := math.Abs(v), 0
	switch {
	case size == 0:
		return "0"
	case size >= 99.95:
		return withCommas(strconv.FormatFloat(v, 'f', 0, 64))
	case size >= 9.995:
		places = 1
	case size >= 0.995:
		places = 2
	default:
		places = 1 - int(math.Floor(math.Log10(size)))
	}
	return strconv.FormatFloat(v, 'f', places, 64)
}

func withCommas(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// formatWithUnit writes a short number with its unit, for plots.
func formatWithUnit(v float64, unit string) string {
	switch {
	case unit == "ms" && v >= 1000:
		return formatNumber(v/1000) + " s"
	case unit == "ms" && v < 0.1:
		return formatNumber(v*1000) + " µs"
	case unit == "tasks/s" && v >= 9995:
		return strconv.FormatFloat(v/1000, 'f', 1, 64) + "k tasks/s"
	case strings.HasPrefix(unit, "share"):
		return formatNumber(v*100) + " %"
	}
	return formatNumber(v) + " " + unit
}

// formatCount writes a whole number: 5k, 1M.
func formatCount(n float64) string {
	switch {
	case n >= 1e6 && math.Mod(n, 1e5) == 0:
		return strconv.FormatFloat(n/1e6, 'f', -1, 64) + "M"
	case n >= 1e3 && math.Mod(n, 1e3) == 0:
		return strconv.FormatFloat(n/1e3, 'f', -1, 64) + "k"
	}
	return withCommas(strconv.FormatFloat(n, 'f', -1, 64))
}

// formatSpread writes the median, and the range if there is one.
func formatSpread(s result.Spread) string {
	if s.Rounds < 2 {
		return formatNumber(s.Median)
	}
	return formatNumber(s.Median) + " (" + formatNumber(s.Min) + "–" + formatNumber(s.Max) + ")"
}
