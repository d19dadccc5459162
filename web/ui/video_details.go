package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/store"
)

// facts are what the stages found out about a video. The stages of other pipelines
// have other results; then there are none, and the results are shown as they are.
type videoDetails struct {
	Name     string
	Rows     []detail
	Warnings []string
}

type detail struct{ Name, Value string }

// found is what is read of the results of the stages of the video pipeline.
type stageResult struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	Info  *struct {
		Container string  `json:"container"`
		Duration  float64 `json:"duration"`
		Video     *struct {
			Codec  string  `json:"codec"`
			Width  int     `json:"width"`
			Height int     `json:"height"`
			FPS    float64 `json:"fps"`
			HDR    string  `json:"hdr"`
		} `json:"video"`
		Audio []struct {
			Codec    string `json:"codec"`
			Channels int    `json:"channels"`
			Language string `json:"language"`
		} `json:"audio"`
		Subtitles []struct {
			Language string `json:"language"`
		} `json:"subtitles"`
		Warnings []string `json:"warnings"`
	} `json:"info"`
	Rungs []struct {
		Name   string `json:"name"`
		Height int    `json:"height"`
	} `json:"rungs"`
	Master     string `json:"master"`
	Generation string `json:"generation"`
	Files      int    `json:"files"`
}

// latestResult is what the latest completed attempt at a stage returned, as far as
// it can be read.
func latestResult(history []store.Attempt, stage string) (f stageResult, ok bool) {
	for _, a := range slices.Backward(history) {
		if a.Stage == stage && a.Outcome == "completed" && len(a.Result) > 0 {
			return f, json.Unmarshal(a.Result, &f) == nil
		}
	}
	return f, false
}

func readVideoDetails(history []store.Attempt) videoDetails {
	var out videoDetails
	add := func(name, value string) {
		if value != "" {
			out.Rows = append(out.Rows, detail{name, printable(value)})
		}
	}
	if in, ok := latestResult(history, "ingest"); ok {
		out.Name = printable(path.Base("/" + in.Name))
		if in.Name == "" {
			out.Name = ""
		}
		if in.Bytes > 0 {
			add("Size", formatBytes(in.Bytes))
		}
		out.addSource(in, add)
	}
	if tr, ok := latestResult(history, "transcode"); ok {
		var heights []string
		for _, r := range tr.Rungs {
			if r.Height > 0 {
				heights = append(heights, fmt.Sprintf("%dp", r.Height))
			}
		}
		add("Renditions", strings.Join(heights, ", "))
	}
	for _, w := range store.Warnings(history) {
		if !slices.Contains(out.Warnings, w) {
			out.Warnings = append(out.Warnings, w)
		}
	}
	if p, ok := latestResult(history, "publish"); ok && p.Files > 0 {
		add("Published", fmt.Sprintf("%s, %s", count(p.Files, "file"), formatBytes(p.Bytes)))
	}
	return out
}

// describe tells what is in the source.
func (out *videoDetails) addSource(in stageResult, add func(name, value string)) {
	i := in.Info
	if i == nil {
		return
	}
	add("Duration", formatClock(i.Duration))
	if v := i.Video; v != nil {
		hdr := ""
		if v.HDR != "" {
			hdr = ", HDR " + v.HDR
		}
		add("Picture", fmt.Sprintf("%d × %d, %s, %.4g frames/s%s", v.Width, v.Height, v.Codec, v.FPS, hdr))
	}
	var sound []string
	for _, a := range i.Audio {
		sound = append(sound, strings.TrimSpace(fmt.Sprintf("%s, %s %s", a.Codec, count(a.Channels, "channel"), a.Language)))
	}
	add("Sound", strings.Join(sound, "; "))
	if n := len(i.Subtitles); n > 0 {
		add("Subtitles", fmt.Sprint(n))
	}
	add("Container", containerName(i.Container))
	out.Warnings = append(out.Warnings, i.Warnings...)
}

// container is what to call a format, which ffprobe calls by all the names of what
// reads it.
func containerName(names string) string {
	switch first, _, _ := strings.Cut(names, ","); first {
	case "mov":
		return "MP4 or QuickTime"
	case "matroska":
		return "Matroska or WebM"
	default:
		return first
	}
}

// pretty is JSON with lines, of which there are not too many.
func indentJSON(raw json.RawMessage) string {
	const most = 16 << 10
	var b bytes.Buffer
	if len(raw) == 0 || string(raw) == "null" || json.Indent(&b, raw, "", "  ") != nil {
		return ""
	}
	text := b.String()
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "\n…"
	}
	return printable(text)
}
