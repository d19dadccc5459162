package media

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// maxFrameBytes is far above the size of a frame with its header.
const maxFrameBytes = 32 << 20

// chunkHeaders are digests of the headers that all chunks must have, by rung. They do not depend on the content, but on
// what the source says of its frames. So the first frame is encoded in each size.
func (t Tools) chunkHeaders(
	ctx context.Context, source string, info *Info, rungs []Rung, p *ChunkPlan,
) (map[string]string, error) {
	video, _ := dividedJobs(info, rungs)
	c, err := t.capabilities(ctx, video...)
	if err != nil {
		return nil, err
	}
	headers := make(map[string]string)
	for _, j := range video {
		answer := &limitedBuffer{limit: maxFrameBytes}
		_, err := t.run(ctx, command{
			tool: "ffmpeg", purpose: "encode a header", args: t.headerArgs(source, info, j, c), source: source, stdout: answer,
		})
		if err != nil {
			return nil, err
		}
		text, err := initOf(answer.Bytes(), j)
		if err != nil {
			return nil, fmt.Errorf("read the header of %s: %w", j.dir, err)
		}
		var s renditionFiles
		if err := s.parseInit(text); err != nil {
			return nil, fmt.Errorf("read the header of %s: %w", j.dir, err)
		}
		if s.picture == nil || s.picture.reordered < 0 || s.picture.reordered >= len(p.Head) {
			return nil, &indivisibleError{"its encoder does not say how many frames it reorders"}
		}
		s.editStart = p.Head[s.picture.reordered] - p.Head[0]
		headers[j.rung.Name] = s.headerDigest()
	}
	return headers, nil
}

// initOf returns the initialization segment of a file with one frame, with what a chunk's has of the frame.
func initOf(text []byte, j renditionJob) ([]byte, error) {
	if j.rung.Codec != av1Codec {
		return text, nil
	}
	parsed, err := decodeMP4(bytes.NewReader(text))
	if err != nil || parsed.Init == nil || len(parsed.Segments) == 0 || len(parsed.Segments[0].Fragments) == 0 {
		return nil, cmp.Or(err, fmt.Errorf("it has no frame"))
	}
	header, err := sequenceHeader(parsed.Segments[0].Fragments[0].Mdat.Data)
	if err == nil {
		err = setConfigOBUs(parsed, header)
	}
	var out bytes.Buffer
	err = cmp.Or(err, parsed.Init.Encode(&out))
	return out.Bytes(), err
}

// headerArgs encode the first frame as a chunk does.
func (t Tools) headerArgs(source string, info *Info, j renditionJob, c capabilities) []string {
	v, filters := info.Video, []string{uniformFrames(info.Video)}
	if v.Interlaced {
		filters = append(filters, deinterlacer(v, c, v.framesPerDecoded() == 2))
	}
	filters = slices.Concat(filters, orientationFilters(v), colourFilters(v, j.rung, c))
	args := append(t.ffmpegArgs("-max_error_rate", "1"),
		input(source, append(probedInputOptions(info, c.decoders), "-noautorotate")...)...)
	args = append(args, "-filter_complex", fmt.Sprintf("[0:%d]%s[v]", v.Index, strings.Join(filters, ",")), "-map", "[v]",
		"-frames:v", "1")
	args = append(args, t.encoderArgs(j, v, planTiming(info), c, stitchable)...)
	return append(args, "-f", "mp4", "-movflags", "+empty_moov+delay_moov+frag_keyframe", "-")
}

// headerDigest is a digest of what may differ between the headers of two chunks. The rest of them is written here.
func (s *renditionFiles) headerDigest() string {
	h := sha256.New()
	for _, nalu := range append(s.parameters, binary.AppendVarint(nil, s.editStart)) {
		h.Write(binary.AppendUvarint(nil, uint64(len(nalu))))
		h.Write(nalu)
	}
	return hex.EncodeToString(h.Sum(nil)[:10])
}

// checkHeader compares the header of a chunk with the plan.
func (p *ChunkPlan) checkHeader(rung string, s *renditionFiles) error {
	if want := p.Headers[rung]; want != "" && s.headerDigest() != want {
		return fmt.Errorf("%w: its initialization segment differs from that of the plan; it was made with other settings or "+
			"another version of the encoder", ErrMismatch)
	}
	return nil
}
