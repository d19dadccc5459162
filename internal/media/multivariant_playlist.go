package media

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
)

// The names of the files that players open.
const (
	// MasterName is the file that [WriteMaster] writes.
	MasterName = "master.m3u8"
	// ManifestName is the file that [Tools.WriteMPD] writes.
	ManifestName = "manifest.mpd"
)

// WriteMaster atomically writes the HLS multivariant playlist master.m3u8 into dir,
// with measured bandwidths and frame rates. It puts prefix before every URI; with
// a trailing slash, prefix names the directory of the renditions relative to the
// playlist. It may be empty.
func WriteMaster(dir string, out *Output, prefix string) error {
	text, err := multivariantPlaylist(out, prefix)
	if err != nil {
		return fmt.Errorf("write master playlist: %w", err)
	}
	if err := writeFile(filepath.Join(dir, MasterName), []byte(text)); err != nil {
		return fmt.Errorf("write master playlist: %w", err)
	}
	return nil
}

func multivariantPlaylist(out *Output, prefix string) (string, error) {
	if len(out.Video)+len(out.Audio) == 0 {
		return "", fmt.Errorf("the output has no renditions")
	}
	if strings.ContainsFunc(prefix, func(r rune) bool { return unicode.IsControl(r) || r == '"' }) {
		return "", fmt.Errorf("the prefix %q has a quote or a control character, which a playlist cannot contain", prefix)
	}
	var b strings.Builder
	b.WriteString("#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-INDEPENDENT-SEGMENTS\n")
	groups := groupAudio(out.Audio)
	if len(out.Video) == 0 {
		writeAudioVariants(&b, groups, prefix)
		return b.String(), nil
	}
	// All video rungs use the first audio group.
	var audio audioGroup
	if len(groups) > 0 {
		audio = groups[0]
		writeGroup(&b, audio, prefix)
	}
	for _, v := range out.Video {
		fmt.Fprintf(&b, "#EXT-X-STREAM-INF:BANDWIDTH=%d,AVERAGE-BANDWIDTH=%d,CODECS=\"%s\",RESOLUTION=%dx%d,"+
			"FRAME-RATE=%.3f,VIDEO-RANGE=SDR",
			v.PeakBandwidth+audio.peak, v.AverageBandwidth+audio.average, joinCodecs(v.Codecs, audio.codecs),
			v.Width, v.Height, v.FrameRate)
		if audio.name != "" {
			fmt.Fprintf(&b, ",AUDIO=\"%s\"", audio.name)
		}
		fmt.Fprintf(&b, ",CLOSED-CAPTIONS=NONE\n%s%s\n", prefix, v.Playlist)
	}
	return b.String(), nil
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

func writeGroup(b *strings.Builder, g audioGroup, prefix string) {
	used := map[string]bool{}
	for i, r := range g.list {
		fmt.Fprintf(b, "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"%s\",NAME=\"%s\"", g.name, trackName(r, i, used))
		if r.Language != "" {
			fmt.Fprintf(b, ",LANGUAGE=\"%s\"", bcp47(r.Language))
		}
		fmt.Fprintf(b, ",DEFAULT=%s,AUTOSELECT=YES,CHANNELS=\"%d\",URI=\"%s%s\"\n",
			yesNo(r.Default), r.Channels, prefix, r.Playlist)
	}
}

// writeAudioVariants lists audio without video: each rung is a variant. Rungs need
// groups only if there are several languages.
func writeAudioVariants(b *strings.Builder, groups []audioGroup, prefix string) {
	for _, g := range groups {
		several := len(g.list) > 1
		if several {
			writeGroup(b, g, prefix)
		}
		fmt.Fprintf(b, "#EXT-X-STREAM-INF:BANDWIDTH=%d,AVERAGE-BANDWIDTH=%d,CODECS=\"%s\"", g.peak, g.average, g.codecs)
		if several {
			fmt.Fprintf(b, ",AUDIO=\"%s\"", g.name)
		}
		fmt.Fprintf(b, "\n%s%s\n", prefix, g.list[0].Playlist)
	}
}

// trackName is the name in a player's menu; names in a group must differ.
func trackName(r Rendition, i int, used map[string]bool) string {
	name := strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || c == '"' || c == unicode.ReplacementChar {
			return -1
		}
		return c
	}, strings.TrimSpace(r.Title))
	if runes := []rune(name); len(runes) > 60 {
		name = string(runes[:60])
	}
	if name == "" {
		name = r.Language
	}
	if name == "" {
		name = fmt.Sprintf("Audio %d", i+1)
	}
	for base, n := name, 2; used[name]; n++ {
		name = fmt.Sprintf("%s (%d)", base, n)
	}
	used[name] = true
	return name
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
