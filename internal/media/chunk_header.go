package media

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// maxTrialBytes is far above the size of a frame of one colour.
const maxTrialBytes = 1 << 20

// chunkHeaders are digests of the headers that all chunks must have, by rung. They do not depend on the content, so a
// frame of one colour is encoded in each size.
func (t Tools) chunkHeaders(ctx context.Context, info *Info, rungs []Rung, p *ChunkPlan) (map[string]string, error) {
	c, err := t.capabilities(ctx, true, false)
	if err != nil {
		return nil, err
	}
	video, _ := renditionJobs(info, rungs)
	headers := make(map[string]string)
	for _, j := range video {
		args := append(t.ffmpegArgs(), "-f", "lavfi", "-i", "color=s=64x64:r=25", "-frames:v", "1", "-vf",
			strings.Join(colourFilters(&Video{}, j.rung, c), ","))
		args = append(args, t.encoderArgs(j, info.Video, planTiming(info), c, stitchable)...)
		answer := &limitedBuffer{limit: maxTrialBytes}
		_, err := t.run(ctx, command{
			tool: "ffmpeg", purpose: "encode a header", stdout: answer,
			args: append(args, "-f", "mp4", "-movflags", "+empty_moov+delay_moov+frag_keyframe", "-"),
		})
		if err != nil {
			return nil, err
		}
		var s renditionFiles
		if err := s.parseInit(answer.Bytes()); err != nil {
			return nil, fmt.Errorf("read the header of %s: %w", j.dir, err)
		}
		if s.sps == nil || s.sps.reordered < 0 || s.sps.reordered >= len(p.Head) {
			return nil, &indivisibleError{"its encoder does not say how many frames it reorders"}
		}
		s.editStart = p.Head[s.sps.reordered] - p.Head[0]
		headers[j.rung.Name] = s.headerDigest()
	}
	return headers, nil
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
