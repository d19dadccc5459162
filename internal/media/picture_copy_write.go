package media

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/Eyevinn/mp4ff/mp4"
)

// copyFilters put the parameter sets of the source's headers, of which it may have several, before keyframes; leave out units; and tell
// the muxer how long the last frame of a fragment lasts.
const copyFilters = `h264_mp4toannexb,filter_units=remove_types=%s,` +
	`setts=pts=PTS:dts=DTS:duration=if(gt(NEXT_DTS\,DTS)\,NEXT_DTS-DTS\,DURATION)`

// Messages are left out, as encoders do: captions, which are published as text, and what cameras say of places and times. So are
// parameter sets, once PlanCopy has found that they are those of the header.
const messageUnits, repeatedUnits = "6", "6-8"

// maxCopiedBytes is more than a group of pictures has.
const maxCopiedBytes = 256 << 20

// copyReader reads the packets of a picture from the output of ffmpeg.
type copyReader struct {
	frame func(f sample, data []byte) error // gets them in decoding order; the first is shown at 0
	files renditionFiles                    // what the header says
	err   error                             // of the content, or of frame

	cancel       context.CancelCauseFunc
	header, moof []byte
	buffer       []byte
	zero         *int64
}

// copyPackets reads all packets of a source's picture, without some types of units.
func (t Tools) copyPackets(ctx context.Context, source string, info *Info, without string, r *copyReader) error {
	c, err := t.capabilities(ctx)
	if err != nil {
		return err
	}
	ctx, r.cancel = context.WithCancelCause(ctx)
	defer r.cancel(nil)
	args := append(t.ffmpegArgs(), input(source, probedInputOptions(info, c.decoders)...)...)
	args = append(args, "-map", "0:"+strconv.Itoa(info.Video.Index), "-c", "copy", "-bsf:v", fmt.Sprintf(copyFilters, without),
		"-map_metadata", "-1", "-video_track_timescale", strconv.Itoa(videoTimescale), "-f", "mp4",
		"-movflags", "+empty_moov+frag_keyframe+default_base_moof", "-")
	_, err = t.run(ctx, command{tool: "ffmpeg", purpose: "copy picture", args: args, source: source, stdout: r})
	if r.err != nil {
		return r.err
	}
	return err
}

// Write reads the boxes that are complete. After an error it ends ffmpeg.
func (r *copyReader) Write(b []byte) (int, error) {
	r.buffer = append(r.buffer, b...)
	for len(r.buffer) >= 8 && r.err == nil {
		size := int(binary.BigEndian.Uint32(r.buffer))
		switch {
		case size < 8 || size > maxCopiedBytes:
			r.err = errors.New("a group of pictures is too large")
		case size > len(r.buffer):
			return len(b), nil
		default:
			r.err = r.addBox(string(r.buffer[4:8]), r.buffer[:size])
			r.buffer = r.buffer[:copy(r.buffer, r.buffer[size:])]
		}
	}
	if r.err != nil {
		r.buffer = nil
		r.cancel(r.err)
	}
	return len(b), nil
}

func (r *copyReader) addBox(kind string, box []byte) error {
	switch kind {
	case "ftyp", "moov":
		if r.header = append(r.header, box...); kind == "moov" {
			return r.files.parseInit(r.header)
		}
	case "moof":
		r.moof = bytes.Clone(box)
	case "mdat":
		return r.addFragment(append(r.moof, box...))
	}
	return nil
}

func (r *copyReader) addFragment(text []byte) error {
	parsed, err := decodeMP4(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if len(parsed.Segments) != 1 || len(parsed.Segments[0].Fragments) != 1 || r.files.picture == nil {
		return errors.New("ffmpeg has not written one fragment of a picture")
	}
	var g segment
	if err := g.add(parsed.Segments[0].Fragments[0]); err != nil {
		return err
	}
	for _, f := range g.samples {
		if r.zero == nil {
			r.zero = new(f.pts)
		}
		f.pts -= *r.zero
		if err := r.frame(f, text[f.offset:f.offset+f.size]); err != nil {
			return err
		}
	}
	return nil
}

// writeCopies writes the files of all renditions that are copies, for finishRendition.
func (r transcodeRun) writeCopies(ctx context.Context) error {
	for _, j := range r.video {
		if !isCopy(j) {
			continue
		}
		if err := r.tools.copyRendition(ctx, r.source, r.info, filepath.Join(r.dir, j.dir)); err != nil {
			return err
		}
	}
	return nil
}

// copyRendition writes the segments of a copy, the header of the source, and a playlist without durations.
func (t Tools) copyRendition(ctx context.Context, source string, info *Info, folder string) error {
	w := &copyWriter{dir: folder, plan: info.Video.Copy, end: info.Video.copyEnd(), list: renditionFiles{init: initName, timescale: 1}}
	r := copyReader{frame: w.add}
	err := t.copyPackets(ctx, source, info, repeatedUnits, &r)
	if err == nil {
		err = w.flush(w.end)
	}
	if err == nil && len(w.list.segments) != len(w.plan.Starts) {
		err = fmt.Errorf("%w: it has %d segments instead of %d", ErrMismatch, len(w.list.segments), len(w.plan.Starts))
	}
	if err == nil {
		err = writeFile(filepath.Join(folder, initName), r.header)
	}
	if err == nil {
		err = writeFile(filepath.Join(folder, playlistName), []byte(w.list.playlist(0)))
	}
	if err != nil {
		return fmt.Errorf("copy picture: %w", err)
	}
	return nil
}

// copyWriter writes the segments of a copy. It computes when frames are decoded, because some containers only guess that: each at the
// time of the frame that is so many frames before it in display order.
type copyWriter struct {
	dir    string
	plan   *PictureCopy
	end    int64   // when the last frame ends
	before []int64 // when the last frames before the segment are shown
	delay  int64   // in ticks
	frames []sample
	data   bytes.Buffer
	list   renditionFiles
}

func (w *copyWriter) add(f sample, data []byte) error {
	if n := len(w.list.segments) + 1; n < len(w.plan.Starts) && f.pts >= w.plan.Starts[n]-copyRounding {
		if !f.isKey || f.pts > w.plan.Starts[n]+copyRounding {
			return fmt.Errorf("%w: segment %d does not begin with the keyframe of the plan", ErrMismatch, n)
		}
		if err := w.flush(f.pts); err != nil {
			return err
		}
	}
	w.frames = append(w.frames, f)
	w.data.Write(data)
	return nil
}

// flush writes a segment that ends at a time.
func (w *copyWriter) flush(end int64) error {
	times, number := make([]int64, len(w.frames)), len(w.list.segments)
	for i, f := range w.frames {
		times[i] = f.pts
	}
	slices.Sort(times)
	if len(times) <= w.plan.Delay {
		return fmt.Errorf("%w: segment %d has only %d frames", ErrMismatch, number, len(times))
	}
	if number == 0 {
		w.delay = times[w.plan.Delay]
		for _, at := range times[:w.plan.Delay] {
			w.before = append(w.before, at-w.delay)
		}
	}
	decoded := append(append(w.before, times...), end)
	if end == w.end {
		decoded[len(times)] = decoded[len(times)-1] + max(1, end-times[len(times)-1]) // the duration of the last frame that is shown
	}
	w.before = slices.Clone(times[len(times)-w.plan.Delay:])
	fragment, err := mp4.CreateFragment(uint32(number+1), trackID)
	if err != nil {
		return err
	}
	for i, f := range w.frames {
		flags := mp4.NonSyncSampleFlags
		if f.isKey {
			flags = mp4.SyncSampleFlags
		}
		fragment.AddFullSample(mp4.FullSample{
			Sample:     mp4.NewSample(flags, uint32(decoded[i+1]-decoded[i]), uint32(f.size), int32(f.pts-decoded[i])),
			DecodeTime: uint64(decoded[i] + w.delay), Data: w.data.Next(int(f.size)),
		})
	}
	written := mp4.NewMediaSegmentWithStyp(mp4.NewStyp(segmentBrands[:4], 0, make([]string, 5))) // room for brandSegment
	written.AddFragment(fragment)
	var out bytes.Buffer
	if err := written.Encode(&out); err != nil {
		return err
	}
	w.list.segments, w.frames = append(w.list.segments, segment{name: segmentName(number)}), nil
	w.data.Reset()
	return writeFile(filepath.Join(w.dir, segmentName(number)), out.Bytes())
}
