package media

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// soundInput is the part of a filter graph that reads a sound from an input, with channels that ffmpeg can mix to
// stereo.
func soundInput(input int, a *Audio) string {
	if len(a.Tracks) == 0 {
		return fmt.Sprintf("[%d:%d]%s", input, a.Index, nameChannels(a))
	}
	var tracks string
	for _, t := range a.Tracks {
		tracks += fmt.Sprintf("[%d:%d]", input, t)
	}
	// The channels are taken in the order of the tracks.
	var order []string
	for i, channel := range layoutChannels(a.Layout) {
		order = append(order, fmt.Sprintf("%d.0-%s", i, channel))
	}
	return fmt.Sprintf("%sjoin=inputs=%d:channel_layout=%s:map=%s,", tracks, len(a.Tracks), a.Layout, strings.Join(order, "|"))
}

// mixable are the layouts that ffmpeg mixes to stereo without losing a channel, except for the low frequencies.
var mixable = []string{
	"mono", "stereo", "2.1", "3.0", "3.0(back)", "4.0", "quad", "quad(side)", "3.1", "5.0", "5.0(side)", "4.1", "5.1",
	"5.1(side)", "6.0", "6.0(front)", "hexagonal", "6.1", "6.1(back)", "6.1(front)", "7.0", "7.0(front)", "7.1",
	"7.1(wide)", "7.1(wide-side)", "octagonal",
}

// nameChannels is a filter for a layout that ffmpeg cannot mix, or that the file does not name; empty if none is needed.
// For up to eight channels without names, ffmpeg assumes the usual layout. Its choice for three is 2.1, which would lose
// the third. Of other channels, the even ones go to the left and the odd ones to the right, so that none is lost.
func nameChannels(a *Audio) string {
	switch {
	case slices.Contains(mixable, a.Layout), a.Layout == "" && a.Channels != 3 && a.Channels <= 8:
		return ""
	case a.Layout == "" && a.Channels == 3:
		return "pan=stereo|c0<c0+0.707*c2|c1<c1+0.707*c2,"
	case a.Channels == 1:
		return "pan=stereo|c0=c0|c1=c0,"
	}
	sides := [2]string{"c0<c0", "c1<c1"}
	for c := 2; c < a.Channels; c++ {
		sides[c%2] += fmt.Sprintf("+c%d", c)
	}
	return fmt.Sprintf("pan=stereo|%s|%s,", sides[0], sides[1])
}

// joinMonoTracks makes one sound of uncompressed mono tracks that are the channels of one recording, as editing
// programs and broadcast cameras write them: two are left and right, six are 5.1, and others are pairs of left and
// right, unless labels say more. Tracks with languages, titles or purposes of their own stay separate.
func (i *Info) joinMonoTracks(streams map[int]*rawStream) {
	var mono, rest []Audio
	for _, a := range i.Audio {
		if a.Channels == 1 && strings.HasPrefix(a.Codec, "pcm_") {
			mono = append(mono, a)
		} else {
			rest = append(rest, a)
		}
	}
	if len(mono) < 2 || !areOneRecording(mono, streams) {
		return
	}
	joined := joinTracks(mono)
	if joined == nil {
		return
	}
	for _, a := range joined {
		if len(a.Tracks) > 0 {
			i.warn("the mono tracks %s are taken as the channels %s of one sound", listNumbers(a.Tracks),
				strings.Join(layoutChannels(a.Layout), ", "))
		}
	}
	i.Audio = slices.SortedStableFunc(slices.Values(append(joined, rest...)), func(a, b Audio) int {
		return cmp.Compare(a.Index, b.Index)
	})
}

// areOneRecording reports whether mono tracks may be channels of one sound: they begin and end together, and nothing
// says that they are different sounds.
func areOneRecording(tracks []Audio, streams map[int]*rawStream) bool {
	first := tracks[0]
	firstTitle := titleKind(first)
	for _, a := range tracks {
		d := streams[a.Index].Disposition
		if a.Codec != first.Codec || a.Rate != first.Rate || math.Abs(a.Start-first.Start) > maxSoundError ||
			math.Abs(a.Duration-first.Duration) > timeSlack || a.Language != first.Language ||
			titleKind(a) != firstTitle || d.Comment != 0 || d.Impaired != 0 {
			return false
		}
	}
	return true
}

// titleKind is a track's title without its number; empty if it is the name of a channel.
func titleKind(a Audio) string {
	if channelOf(a) != "" {
		return ""
	}
	return strings.TrimSpace(strings.Trim(strings.ToLower(a.Title), "0123456789 #-_"))
}

// joinTracks makes sounds of mono tracks; nil if their labels contradict each other.
func joinTracks(tracks []Audio) []Audio {
	var labels []string
	for _, a := range tracks {
		if c := channelOf(a); c != "" {
			labels = append(labels, c)
		}
	}
	switch {
	case len(labels) == len(tracks):
		return joinLabelled(tracks)
	case len(labels) > 0:
		return nil
	case len(tracks) == 6:
		return []Audio{joinAs(tracks, "5.1")}
	}
	var list []Audio
	for pair := range slices.Chunk(tracks, 2) {
		if len(pair) == 1 {
			list = append(list, pair[0])
			continue
		}
		list = append(list, joinAs(pair, "stereo"))
	}
	return list
}

// joinLabelled joins the tracks with the channels of a known layout, and a further left and right.
func joinLabelled(tracks []Audio) []Audio {
	var list []Audio
	for len(tracks) > 0 {
		best := ""
		for _, name := range []string{"7.1", "5.1", "5.0", "4.0", "quad", "3.0", "stereo"} {
			if best == "" && hasChannels(tracks, layoutChannels(name)) {
				best = name
			}
		}
		if best == "" {
			return nil
		}
		var chosen []Audio
		for _, channel := range layoutChannels(best) {
			k := slices.IndexFunc(tracks, func(a Audio) bool { return channelOf(a) == channel })
			chosen = append(chosen, tracks[k])
			tracks = slices.Delete(slices.Clone(tracks), k, k+1)
		}
		list = append(list, joinAs(chosen, best))
	}
	return list
}

func hasChannels(tracks []Audio, channels []string) bool {
	for _, c := range channels {
		if !slices.ContainsFunc(tracks, func(a Audio) bool { return channelOf(a) == c }) {
			return false
		}
	}
	return true
}

func joinAs(tracks []Audio, layout string) Audio {
	joined := tracks[0]
	joined.Channels, joined.Layout, joined.Title = len(tracks), layout, ""
	for _, a := range tracks {
		joined.Tracks = append(joined.Tracks, a.Index)
		joined.Index = min(joined.Index, a.Index)
	}
	return joined
}

// layoutChannels lists the channels of a layout of joined tracks, by ffmpeg's names.
func layoutChannels(layout string) []string {
	return map[string][]string{
		"stereo": {"FL", "FR"}, "3.0": {"FL", "FR", "FC"}, "4.0": {"FL", "FR", "FC", "BC"}, "quad": {"FL", "FR", "BL", "BR"},
		"5.0": {"FL", "FR", "FC", "BL", "BR"}, "5.1": {"FL", "FR", "FC", "LFE", "BL", "BR"},
		"7.1": {"FL", "FR", "FC", "LFE", "BL", "BR", "SL", "SR"},
	}[layout]
}

// channelOf is the channel that a mono track's label or title names: ffmpeg's name of it, or "". A label "mono" says
// nothing: editing programs give it to every track.
func channelOf(a Audio) string {
	label := a.Layout
	if _, in, ok := strings.Cut(label, "("); ok {
		label = strings.TrimSuffix(in, ")") // "1 channels (FL)"
	}
	for _, name := range []string{label, a.Title} {
		if c := channelNames[strings.ToLower(strings.TrimSpace(name))]; c != "" {
			return c
		}
	}
	return ""
}

// channelNames are ffmpeg's names of channels by those of labels and titles.
var channelNames = map[string]string{
	"fl": "FL", "l": "FL", "left": "FL", "dl": "FL", "lt": "FL", "front left": "FL",
	"fr": "FR", "r": "FR", "right": "FR", "dr": "FR", "rt": "FR", "front right": "FR",
	"fc": "FC", "c": "FC", "center": "FC", "centre": "FC", "lfe": "LFE", "bc": "BC",
	"bl": "BL", "ls": "BL", "left surround": "BL", "br": "BR", "rs": "BR", "right surround": "BR",
	"sl": "SL", "lss": "SL", "sr": "SR", "rss": "SR",
}

// listNumbers writes "1, 2 and 3".
func listNumbers(numbers []int) string {
	var b strings.Builder
	for i, n := range numbers {
		switch {
		case i > 0 && i == len(numbers)-1:
			b.WriteString(" and ")
		case i > 0:
			b.WriteString(", ")
		}
		fmt.Fprint(&b, n)
	}
	return b.String()
}
