package video

import (
	"context"
	"math"
	"slices"

	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
)

// MP4Names are the names of the MP4 files that assemble makes; empty for those that nobody asked for.
type MP4Names struct {
	MP4     string `json:"mp4,omitempty"`
	Preview string `json:"preview,omitempty"`
}

// largestMP4 is the value of Settings.MP4 for the largest rendition.
const largestMP4 = "max"

func (s Settings) mp4Height() int {
	if height, err := ParseHeight(s.MP4); err == nil {
		return height
	}
	return math.MaxInt
}

// mp4Files are the MP4 files that the settings ask for. A source without a picture has none.
func (in Ingest) mp4Files(out *media.Output) (files []media.MP4File, names MP4Names) {
	add := func(f media.MP4File, name *string) {
		if len(f.Renditions) > 0 {
			files, *name = append(files, f), f.Name
		}
	}
	if in.Settings.Encryption != "" {
		return nil, names // they would be clear
	}
	if in.Settings.MP4 != "" {
		add(out.MP4(in.Settings.mp4Height()), &names.MP4)
	}
	if v := in.Info.Video; v != nil && in.Settings.Preview != "" {
		add(out.Preview(timeAt(in.Settings.Preview, v.Duration)), &names.Preview)
	}
	return files, names
}

// writeMP4s writes the files of mp4Files into dir, which has the renditions.
func (c Config) writeMP4s(ctx context.Context, job *stages.Job, dir string, in Ingest, out *media.Output) error {
	files, _ := in.mp4Files(out)
	for _, f := range files {
		if err := diskspace.Check(dir, in.mp4Size(), c.reserve()); err != nil {
			return err
		}
		if err := c.tools(job, -1, f.Name).WriteMP4(ctx, dir, f); err != nil {
			return err
		}
	}
	return nil
}

// mp4Size is the highest size in bytes of video.mp4. A preview is small.
func (in Ingest) mp4Size() int64 {
	if in.Settings.MP4 == "" {
		return 0
	}
	h264 := slices.DeleteFunc(in.ladder(), func(r media.Rung) bool { return r.IsAudio() || r.Codec != "" })
	audio := slices.DeleteFunc(in.ladder(), func(r media.Rung) bool { return !r.IsAudio() })
	return estimateSize(in.Info.Duration, append(media.AtMost(h264, in.Settings.mp4Height()), audio...))
}
