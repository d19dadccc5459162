package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/internal/media/captions"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

// videoDetails is what the stages found out about a video. It is empty for other
// pipelines than the video pipeline: the page shows their results as JSON.
type videoDetails struct {
	Name     string
	Rows     []detail
	Warnings []string
}

type detail struct{ Name, Value string }

// stageResult has the fields that the dashboard reads from results of the video
// pipeline's stages.
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
		Warnings []string `json:"warnings"`
	} `json:"info"`
	Rungs []struct {
		Name   string `json:"name"`
		Height int    `json:"height"`
	} `json:"rungs"`
	Output struct {
		Encoder string `json:"encoder"`
	} `json:"output"`
	Chunks    json.RawMessage `json:"chunks"` // of transcode: how many; of ingest: the plan
	Undivided string          `json:"undivided"`
	Files     int             `json:"files"`
	Captions  []struct {
		Dir      string `json:"dir"`
		Language string `json:"language"`
		Name     string `json:"name"`
	} `json:"captions"`
	Chapters []captions.Chapter `json:"chapters"`
}

// latestResult reads the result of the latest completed attempt of a stage. It returns
// an empty one if there is none.
func latestResult(history []store.Attempt, stage string) (r stageResult) {
	for _, a := range slices.Backward(history) {
		if a.Stage == stage && a.Outcome == "completed" && len(a.Result) > 0 {
			if json.Unmarshal(a.Result, &r) != nil {
				return stageResult{} // of another pipeline
			}
			return r
		}
	}
	return r
}

func readVideoDetails(history []store.Attempt) (d videoDetails) {
	ingest := latestResult(history, "ingest")
	if ingest.Name != "" {
		d.Name = printable(path.Base("/" + ingest.Name))
	}
	if ingest.Bytes > 0 {
		d.add("Size", formatBytes(ingest.Bytes))
	}
	d.addMediaInfo(ingest)
	var renditions []string
	transcode := latestResult(history, "transcode")
	for _, r := range transcode.Rungs {
		if r.Height > 0 {
			renditions = append(renditions, r.Name)
		}
	}
	d.add("Renditions", strings.Join(renditions, ", "))
	var names []string
	for _, c := range latestResult(history, "assemble").Captions {
		names = append(names, c.Name)
	}
	d.add("Captions", strings.Join(names, ", "))
	d.add("Encoder", transcode.Output.Encoder)
	d.add("Chunks", string(transcode.Chunks))
	d.add("Not divided", transcode.Undivided)
	for _, w := range report.Warnings(history) {
		if !slices.Contains(d.Warnings, w) {
			d.Warnings = append(d.Warnings, w)
		}
	}
	if p := latestResult(history, "publish"); p.Files > 0 {
		d.add("Published", count(p.Files, "file")+", "+formatBytes(p.Bytes))
	}
	return d
}

// add adds a row, unless its value is empty.
func (d *videoDetails) add(name, value string) {
	if value != "" {
		d.Rows = append(d.Rows, detail{name, printable(value)})
	}
}

func (d *videoDetails) addMediaInfo(ingest stageResult) {
	i := ingest.Info
	if i == nil {
		return
	}
	d.add("Duration", formatClock(i.Duration))
	if v := i.Video; v != nil {
		hdr := ""
		if v.HDR != "" {
			hdr = ", HDR " + v.HDR
		}
		d.add("Video", fmt.Sprintf("%d × %d, %s, %.4g frames/s%s", v.Width, v.Height, v.Codec, v.FPS, hdr))
	}
	var audio []string
	for _, a := range i.Audio {
		text := fmt.Sprintf("%s, %s %s", a.Codec, count(a.Channels, "channel"), a.Language)
		audio = append(audio, strings.TrimSpace(text))
	}
	d.add("Audio", strings.Join(audio, "; "))
	d.add("Container", containerName(i.Container))
	d.Warnings = append(d.Warnings, i.Warnings...)
}

// containerName returns a common name for ffprobe's list of format names.
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

// indentJSON formats JSON in lines, cut at a maximum length.
func indentJSON(raw json.RawMessage) string {
	const maxLength = 16 << 10
	var b bytes.Buffer
	if len(raw) == 0 || string(raw) == "null" || json.Indent(&b, raw, "", "  ") != nil {
		return ""
	}
	text := b.String()
	if len(text) > maxLength {
		text = strings.ToValidUTF8(text[:maxLength], "") + "\n…"
	}
	return printable(text)
}
