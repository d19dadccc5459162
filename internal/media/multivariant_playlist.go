package media

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/language"
	"golang.org/x/text/language/display"

	"github.com/cuelight/cuelight/internal/media/captions"
)

// The names of the files that players open.
const (
	// MasterName is the HLS multivariant playlist, and ManifestName the DASH manifest.
	MasterName   = "master.m3u8"
	ManifestName = "manifest.mpd"
)

// RebaseMaster returns a multivariant playlist with a prefix before every URI: the directory of its files, with a trailing slash.
func RebaseMaster(text, prefix string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "#"):
			line = strings.Replace(line, `,URI="`, `,URI="`+prefix, 1) // no quoted string has a quote
		case strings.TrimSpace(line) != "":
			line = prefix + line
		}
		b.WriteString(line)
	}
	return b.String()
}

// multivariantPlaylist lists the renditions, with measured bandwidths and frame rates.
func multivariantPlaylist(out *Output, iframes []iframePlaylist) string {
	var b strings.Builder
	b.WriteString("#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-INDEPENDENT-SEGMENTS\n")
	if len(out.Chapters) > 0 {
		fmt.Fprintf(&b, "#EXT-X-SESSION-DATA:DATA-ID=\"com.apple.hls.chapters\",URI=\"%s\"\n", ChaptersJSONName)
	}
	groups := groupAudio(out.Audio)
	text := writeCaptions(&b, out.Captions)
	if len(out.Video) == 0 {
		writeAudioVariants(&b, groups, text)
		return b.String()
	}
	// All video rungs use the first audio group.
	var audio audioGroup
	if len(groups) > 0 {
		audio = groups[0]
		writeGroup(&b, audio)
	}
	for _, v := range slices.Concat(videoSets(out.Video)...) {
		fmt.Fprintf(&b, "#EXT-X-STREAM-INF:BANDWIDTH=%d,AVERAGE-BANDWIDTH=%d,CODECS=\"%s\",RESOLUTION=%dx%d,"+
			"FRAME-RATE=%.3f,VIDEO-RANGE=%s",
			v.PeakBandwidth+audio.peak, v.AverageBandwidth+audio.average, joinCodecs(v.Codecs, audio.codecs),
			v.Width, v.Height, v.FrameRate, v.videoRange())
		if audio.name != "" {
			fmt.Fprintf(&b, ",AUDIO=\"%s\"", audio.name)
		}
		fmt.Fprintf(&b, "%s,CLOSED-CAPTIONS=NONE\n%s\n", text, v.Playlist)
	}
	for _, p := range iframes {
		v := p.of
		fmt.Fprintf(&b, "#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=%d,AVERAGE-BANDWIDTH=%d,CODECS=\"%s\",RESOLUTION=%dx%d,VIDEO-RANGE=%s,"+
			"URI=\"%s\"\n", p.peak, p.average, v.Codecs, v.Width, v.Height, v.videoRange(), p.name)
	}
	return b.String()
}

// videoRange is the attribute VIDEO-RANGE.
func (r Rendition) videoRange() string { return cmp.Or(strings.ToUpper(r.HDR), "SDR") }

// videoSets are the renditions of each codec, the largest first. Those of H.264 come first, because every player can begin with one.
func videoSets(list []Rendition) (sets [][]Rendition) {
	for _, r := range list {
		i := slices.IndexFunc(sets, func(s []Rendition) bool { return s[0].Codecs[:4] == r.Codecs[:4] })
		if i < 0 {
			i, sets = len(sets), append(sets, nil)
		}
		sets[i] = append(sets[i], r)
	}
	slices.SortStableFunc(sets, func(a, b []Rendition) int { return strings.Compare(h264First(a), h264First(b)) })
	return sets
}

func h264First(set []Rendition) string { return strings.TrimPrefix(set[0].Codecs[:4], "avc1") }

// writeCaptions lists the text tracks, and returns the attribute of the variants that refers to them.
func writeCaptions(b *strings.Builder, tracks []Captions) (attribute string) {
	for _, c := range tracks {
		fmt.Fprintf(b, "#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"captions\",NAME=\"%s\"", quotable(c.Name))
		if c.Language != "" {
			fmt.Fprintf(b, ",LANGUAGE=\"%s\"", c.Language)
		}
		fmt.Fprintf(b, ",DEFAULT=%s,AUTOSELECT=YES,FORCED=%s", yesNo(c.Default), yesNo(c.Forced))
		if c.SDH {
			b.WriteString(",CHARACTERISTICS=\"public.accessibility.transcribes-spoken-dialog,public.accessibility.describes-music-and-sound\"")
		}
		fmt.Fprintf(b, ",URI=\"%s/%s\"\n", c.Dir, captions.PlaylistName)
		attribute = ",SUBTITLES=\"captions\""
	}
	return attribute
}

// audioGroup is the audio renditions of one rung.
type audioGroup struct {
	name          string
	list          []Rendition
	codecs        string
	peak, average int64
}

func groupAudio(list []Rendition) []audioGroup {
	var groups []audioGroup
	for _, r := range list {
		i := 0
		for i < len(groups) && groups[i].name != r.Group {
			i++
		}
		if i == len(groups) {
			groups = append(groups, audioGroup{name: r.Group, codecs: r.Codecs})
		}
		g := &groups[i]
		g.list = append(g.list, r)
		// A player selects one of them, perhaps the largest.
		g.peak, g.average = max(g.peak, r.PeakBandwidth), max(g.average, r.AverageBandwidth)
	}
	return groups
}

func writeGroup(b *strings.Builder, g audioGroup) {
	used := map[string]bool{}
	for i, r := range g.list {
		fmt.Fprintf(b, "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"%s\",NAME=\"%s\"", g.name, trackName(r, i, used))
		if r.Language != "" {
			fmt.Fprintf(b, ",LANGUAGE=\"%s\"", bcp47(r.Language))
		}
		fmt.Fprintf(b, ",DEFAULT=%s,AUTOSELECT=YES,CHANNELS=\"%d\",URI=\"%s\"\n",
			yesNo(r.Default), r.Channels, r.Playlist)
	}
}

// writeAudioVariants lists audio without video: each rung is a variant. Rungs need
// groups only if there are several languages.
func writeAudioVariants(b *strings.Builder, groups []audioGroup, text string) {
	for _, g := range groups {
		several := len(g.list) > 1
		if several {
			writeGroup(b, g)
		}
		fmt.Fprintf(b, "#EXT-X-STREAM-INF:BANDWIDTH=%d,AVERAGE-BANDWIDTH=%d,CODECS=\"%s\"", g.peak, g.average, g.codecs)
		if several {
			fmt.Fprintf(b, ",AUDIO=\"%s\"", g.name)
		}
		fmt.Fprintf(b, "%s\n%s\n", text, g.list[0].Playlist)
	}
}

// trackName is the name of sound in a player's menu.
func trackName(r Rendition, i int, used map[string]bool) string {
	return menuName(r.Title, r.Language, fmt.Sprintf("Audio %d", i+1), used)
}

// menuName is a name in a player's menu: the title, or else the language in its own words, such as "Deutsch". Names in a group
// must differ.
func menuName(title, tag, fallback string, used map[string]bool) string {
	name := quotable(strings.TrimSpace(title))
	if runes := []rune(name); len(runes) > 60 {
		name = string(runes[:60])
	}
	if known, err := language.Parse(tag); err == nil && name == "" {
		name = display.Self.Name(known)
	}
	name = cmp.Or(name, tag, fallback)
	for base, n := name, 2; used[name]; n++ {
		name = fmt.Sprintf("%s (%d)", base, n)
	}
	used[name] = true
	return name
}

// quotable leaves out what a quoted string of a playlist cannot contain.
func quotable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || c == '"' || c == unicode.ReplacementChar {
			return -1
		}
		return c
	}, text)
}

// bcp47 replaces the three-letter ISO 639-2 code that containers use by the
// two-letter code that players expect, if the language has one.
func bcp47(tag string) string {
	first, rest, more := strings.Cut(tag, "-")
	if short, ok := iso639[first]; ok {
		first = short
	}
	if more {
		return first + "-" + rest
	}
	return first
}

func joinCodecs(video, audio string) string {
	if audio == "" {
		return video
	}
	return video + "," + audio
}

func yesNo(v bool) string {
	if v {
		return "YES"
	}
	return "NO"
}
