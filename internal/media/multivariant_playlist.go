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
	for _, g := range groups {
		writeGroup(&b, g)
		writeVideoVariants(&b, out.Video, g, text)
	}
	if len(groups) == 0 {
		writeVideoVariants(&b, out.Video, audioGroup{}, text)
	} else {
		// For networks that are too slow for any picture.
		writeAudioVariant(&b, groups[0], text+",CLOSED-CAPTIONS=NONE", true)
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

// writeVideoVariants lists all video renditions with a group of audio renditions, which may be empty.
func writeVideoVariants(b *strings.Builder, video []Rendition, audio audioGroup, text string) {
	for _, v := range slices.Concat(videoSets(video)...) {
		fmt.Fprintf(b, "#EXT-X-STREAM-INF:BANDWIDTH=%d,AVERAGE-BANDWIDTH=%d,CODECS=\"%s\",RESOLUTION=%dx%d,"+
			"FRAME-RATE=%.3f,VIDEO-RANGE=%s",
			v.PeakBandwidth+audio.peak, v.AverageBandwidth+audio.average, joinCodecs(v.Codecs, audio.codecs),
			v.Width, v.Height, v.FrameRate, v.videoRange())
		if audio.name != "" {
			fmt.Fprintf(b, ",AUDIO=\"%s\"", audio.name)
		}
		fmt.Fprintf(b, "%s,CLOSED-CAPTIONS=NONE\n%s\n", text, v.Playlist)
	}
}

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

// groupAudio returns the groups, that of stereo first. HLS wants the same sounds in all groups: where one has no rendition of a
// sound, it has that of the first group.
func groupAudio(list []Rendition) []audioGroup {
	var groups []audioGroup
	for _, r := range list {
		if !slices.ContainsFunc(groups, func(g audioGroup) bool { return g.name == r.Group }) {
			groups = append(groups, audioGroup{name: r.Group, codecs: r.Codecs})
		}
	}
	for i := range groups {
		g := &groups[i]
		for _, first := range list {
			if first.Group != groups[0].name {
				continue
			}
			own := func(r Rendition) bool { return r.Group == g.name && r.Source == first.Source }
			if at := slices.IndexFunc(list, own); at >= 0 {
				first = list[at]
			}
			g.list = append(g.list, first)
			// A player selects one of them, perhaps the largest.
			g.peak, g.average = max(g.peak, first.PeakBandwidth), max(g.average, first.AverageBandwidth)
		}
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
		fmt.Fprintf(b, ",DEFAULT=%s,AUTOSELECT=%s", yesNo(r.Default), yesNo(r.Default || r.Role != roleCommentary))
		if c := audioRoles[r.Role].characteristic; c != "" {
			fmt.Fprintf(b, ",CHARACTERISTICS=\"%s\"", c)
		}
		fmt.Fprintf(b, ",CHANNELS=\"%d\",URI=\"%s\"\n", r.Channels, r.Playlist)
	}
}

// writeAudioVariants lists audio without video: each rung is a variant. Rungs need
// groups only if there are several languages or numbers of channels.
func writeAudioVariants(b *strings.Builder, groups []audioGroup, text string) {
	inGroups := slices.ContainsFunc(groups, func(g audioGroup) bool { return len(g.list) > 1 || g.list[0].Channels > stereo })
	for _, g := range groups {
		if inGroups {
			writeGroup(b, g)
		}
		writeAudioVariant(b, g, text, inGroups)
	}
}

// writeAudioVariant lists a variant without a picture.
func writeAudioVariant(b *strings.Builder, g audioGroup, attributes string, inGroup bool) {
	fmt.Fprintf(b, "#EXT-X-STREAM-INF:BANDWIDTH=%d,AVERAGE-BANDWIDTH=%d,CODECS=\"%s\"", g.peak, g.average, g.codecs)
	if inGroup {
		fmt.Fprintf(b, ",AUDIO=\"%s\"", g.name)
	}
	fmt.Fprintf(b, "%s\n%s\n", attributes, g.list[0].Playlist)
}

// trackName is the name of sound in a player's menu, such as "English (commentary)".
func trackName(r Rendition, i int, used map[string]bool) string {
	title, fallback := r.Title, fmt.Sprintf("Audio %d", i+1)
	if role := audioRoles[r.Role].name; role != "" && title == "" {
		title = fmt.Sprintf("%s (%s)", menuName("", r.Language, fallback, map[string]bool{}), role)
	}
	return menuName(title, r.Language, fallback, used)
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
