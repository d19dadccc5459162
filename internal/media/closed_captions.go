package media

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/cuelight/cuelight/internal/media/captions"
)

const (
	// pictureCaptions is the Codec of captions inside the pictures: CEA-608, as ATSC A/53 has it.
	pictureCaptions = "a53"
	// captionSample is how many packets are decoded at each place to find them.
	captionSample = 30
	// tinyPictures is the file from which captions are read.
	tinyPictures = "tiny.nut"
)

// sideDataFields are those that are read: others may be very long.
const sideDataFields = "side_data_type,red_x,red_y,green_x,green_y,blue_x,blue_y,white_point_x,white_point_y," +
	"min_luminance,max_luminance,max_content,max_average"

// captionedCodecs may have captions inside the pictures.
var captionedCodecs = []string{"h264", "hevc", "mpeg2video", "av1"}

// readSideData adds captions inside the pictures to the subtitles, if the first pictures have some, or those in the middle, and finds
// the static metadata of HDR10. ffprobe's field closed_captions of a stream is set only after it has decoded frames.
func (t Tools) readSideData(ctx context.Context, source string, info *Info) error {
	v := info.Video
	if !slices.Contains(captionedCodecs, v.Codec) && v.HDR == "" {
		return nil
	}
	answer := &limitedBuffer{limit: probeBytes}
	args := slices.Concat(quiet, []string{
		"-select_streams", strconv.Itoa(v.Index),
		"-read_intervals", fmt.Sprintf("%%+#%[1]d,%[2]f%%+#%[1]d", captionSample, v.Start+v.Duration/2),
		"-show_entries", "frame_side_data=" + sideDataFields + ":stream_side_data=" + sideDataFields, "-of", "compact",
	}, input(source, resyncOptions(info.Container)...))
	_, err := t.run(ctx, command{tool: "ffprobe", purpose: "side data", args: args, source: source, stdout: answer})
	if _, err := exitBySource(err); err != nil { // it may be unable to seek
		return err
	}
	if v.HDR == "pq" {
		v.StaticHDR = parseStaticHDR(answer.Bytes())
	}
	if bytes.Contains(answer.Bytes(), []byte("A53 Part 4 Closed Captions")) && len(info.Subtitles) < maxSubtitles {
		info.Subtitles = append(info.Subtitles, Subtitle{Index: v.Index, Codec: pictureCaptions, Title: "Closed captions", SDH: true})
	}
	return nil
}

func (s Subtitle) isInPicture() bool { return s.Codec == pictureCaptions }

// isOftenEmpty reports whether recordings have such a stream also where nobody has written a text.
func (s Subtitle) isOftenEmpty() bool { return s.isInPicture() || s.Codec == teletext }

// label names the stream in warnings.
func (s Subtitle) label() string {
	if s.isInPicture() {
		return "the track of closed captions"
	}
	return fmt.Sprintf("the subtitle stream %d", s.Index)
}

// extractClosedCaptions writes the captions inside the pictures into a file in dir. If ffmpeg fails, there is no file: that must not
// cost the video.
func (t Tools) extractClosedCaptions(ctx context.Context, source, dir string, stream Subtitle, info *Info) error {
	found, err := t.capabilities(ctx)
	if err != nil {
		return err
	}
	if err = t.decodeCaptions(ctx, source, dir, info, found); err == nil {
		err = t.readTinyPictures(ctx, dir, stream)
	}
	if exit, ok := errors.AsType[*exitError](err); ok && !errors.Is(exit, ErrMemory) {
		return nil
	}
	return err
}

// decodeCaptions makes tiny pictures that have the captions of the source, and the times of the pictures that Transcode decodes.
// ffmpeg reads captions only behind its filter "movie", which would open the source without the limits of input.
func (t Tools) decodeCaptions(ctx context.Context, source, dir string, info *Info, found capabilities) error {
	args := t.ffmpegArgs("-max_error_rate", "1", "-progress", "pipe:1")
	if !found.fpsMode {
		args = append(args, "-vsync", "passthrough")
	}
	plan := planTiming(info)
	args = append(args, input(source, append(sourceOptions(info, found), plan.inputOptions()...)...)...)
	if info.Range != nil {
		args = append(args, "-t", formatSeconds(plan.begin()+info.Duration))
	}
	args = append(args, "-map", "0:"+strconv.Itoa(info.Video.Index), "-vf",
		uniformFrames(info.Video)+",scale=w=16:h=16:flags=neighbor,setsar=1,format=yuv420p")
	args = append(append(args, fpsModeArgs("passthrough", found)...), "-enc_time_base", outputTimeBase,
		"-c:v", softwareEncoder, "-preset", "ultrafast", "-qp", "51", "-threads", "1", "-a53cc", "1", "-f", "nut", "file:"+tinyPictures)
	_, err := t.joining(source, info).run(ctx, command{
		tool: "ffmpeg", purpose: "decode captions", args: append(args, readAllStreams(info)...), dir: dir, source: source,
		stdout: newProgressReader(info.Duration, nil, time.Now),
	})
	return err
}

func (t Tools) readTinyPictures(ctx context.Context, dir string, stream Subtitle) error {
	_, options := stream.extraction()
	args := t.ffmpegArgs("-copyts", "-f", "lavfi", "-i", "movie="+tinyPictures+":f=nut[out0+subcc]", "-map", "0:s")
	text := &limitedBuffer{limit: captions.MaxBytes}
	_, err := t.run(ctx, command{
		tool: "ffmpeg", purpose: "captions", args: slices.Concat(args, options, []string{"pipe:1"}), dir: dir, stdout: text, noProgress: true,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, stream.extractedName()), placement.ReplaceAllFunc(text.Bytes(), alignment), 0o600)
}

// placement is where ffmpeg places a row of captions, in a plane of 288 lines.
var placement = regexp.MustCompile(`\{\\an7\}\{\\pos\(\d+,(\d+)\)\}`)

// alignment keeps of a placement whether it is in the upper half.
func alignment(row []byte) []byte {
	if y, err := strconv.Atoi(string(placement.FindSubmatch(row)[1])); err == nil && y < 144 {
		return []byte(`{\an8}`)
	}
	return nil
}
