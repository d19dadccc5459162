package media

import (
	"fmt"
	"slices"
	"strings"
)

// programmesOf lists the programmes of a transport stream that contain a stream.
func (raw *rawProbe) programmesOf(stream int) []int {
	if raw.byStream == nil {
		raw.byStream = map[int][]int{}
		for i, p := range raw.Programs {
			for _, s := range p.Streams {
				raw.byStream[s.Index] = append(raw.byStream[s.Index], i)
			}
		}
	}
	return raw.byStream[stream]
}

// sharesProgramme reports whether two streams may be shown together: they are in one programme, or one is in none.
func (raw *rawProbe) sharesProgramme(a, b int) bool {
	of, other := raw.programmesOf(a), raw.programmesOf(b)
	return len(of) == 0 || len(other) == 0 ||
		slices.ContainsFunc(of, func(n int) bool { return slices.Contains(other, n) })
}

// keepProgramme removes the streams that are not in the programme of a stream, and warns of those with content.
func (raw *rawProbe) keepProgramme(stream int, tracks map[int]*trackTiming, info *Info) {
	isOther := func(s rawStream) bool { return !raw.sharesProgramme(s.Index, stream) }
	left := map[int]bool{}
	for _, s := range raw.Streams {
		if isOther(s) && tracks[s.Index] != nil && (s.Type == "video" || s.Type == "audio") {
			for _, n := range raw.programmesOf(s.Index) {
				left[n] = true
			}
		}
	}
	raw.Streams = slices.DeleteFunc(slices.Clone(raw.Streams), isOther)
	if len(left) == 0 {
		return
	}
	var names []string
	for n, p := range raw.Programs {
		if left[n] {
			names = append(names, p.name())
		}
	}
	used := raw.Programs[raw.programmesOf(stream)[0]]
	info.warn("the file has several programmes: %s is used, %s left out", used.name(), strings.Join(names, ", "))
}

func (p rawProgramme) name() string {
	if name := plainText(p.Tags["service_name"]); name != "" {
		return fmt.Sprintf("%d (%s)", p.ID, name)
	}
	return fmt.Sprint(p.ID)
}
