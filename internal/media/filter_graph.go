package media

import (
	"fmt"
	"slices"
	"strings"
)

// videoGraph is ffmpeg's filter graph for all video rungs. It decodes, deinterlaces and rotates once; tone-maps and scales to the
// largest rung once, and scales the other rungs from that. HDR rungs are scaled from the largest of them instead. Its outputs are
// [decoded], every frame from the decoder; [shown], the frames for the encoders; and [v0], [v1] …, one per
// rung that is not copied, through the filter that its encoder needs. Every output must get frames
// continuously: ffmpeg 7 buffers the frames of the others until it does.
func videoGraph(info *Info, rungs []Rung, t timing, c capabilities, e videoEncoder) string {
	v := info.Video
	chain := slices.Concat([]string{"null"}, t.frameFilters(v, c), orientationFilters(v))

	var b strings.Builder
	decoded, trim := t.cut.decodedLabel()
	shown, trimShown := t.cut.shownLabel()
	before := append(slices.Concat(t.cut.sourceFilters(), t.partFilters()), uniformFrames(v))
	fmt.Fprintf(&b, "[0:%d]%s,split=2[%s][source]%s;[source]%s", v.Index, strings.Join(before, ","), decoded, trim, strings.Join(chain, ","))
	ranges := dynamicRanges(rungs)
	if len(ranges) > 1 {
		b.WriteString(",split=2[range0][range1];[range0]null")
	}
	for n, members := range ranges {
		if n > 0 {
			b.WriteString(";[range1]null")
		}
		colours := append(colourFilters(v, rungs[members[0]], c), t.repeatFilters()...)
		if top := rungs[members[0]]; top.HDR != "" {
			colours = hdrFilters(v, top) // no frames are repeated
		}
		outputs := ""
		if n == 0 {
			outputs = "[" + shown + "]"
		}
		for _, i := range members {
			if !rungs[i].Copied {
				outputs += fmt.Sprintf("[s%d]", i)
			}
		}
		fmt.Fprintf(&b, ",%s,split=%d%s", strings.Join(colours, ","), strings.Count(outputs, "["), outputs)
	}
	b.WriteString(trimShown)
	for n := range ranges {
		for _, i := range ranges[n] {
			if !rungs[i].Copied {
				fmt.Fprintf(&b, ";[s%d]%s[v%d]", i, rungFilters(rungs[i], rungs[ranges[n][0]], c, e), i)
			}
		}
	}
	return b.String()
}

// dynamicRanges are the indexes of the SDR rungs and of the HDR rungs, without empty lists.
func dynamicRanges(rungs []Rung) [][]int {
	var sdr, hdr []int
	for i, r := range rungs {
		if r.HDR == "" {
			sdr = append(sdr, i)
		} else {
			hdr = append(hdr, i)
		}
	}
	return slices.DeleteFunc([][]int{sdr, hdr}, func(list []int) bool { return len(list) == 0 })
}

// rungFilters scale the pictures of the largest rung to another one, and copy them to the encoder's device.
func rungFilters(r, top Rung, c capabilities, e videoEncoder) string {
	scale := "null"
	if r.Width != top.Width || r.Height != top.Height {
		scale = fmt.Sprintf("scale=w=%d:h=%d:flags=bicubic,setsar=1", r.Width, r.Height)
	}
	if upload := e.encoderOf(r, c).upload; upload != "" {
		scale += "," + upload
	}
	return scale
}

// countGraph is videoGraph for counting frames: its outputs are [decoded] and [shown].
func countGraph(v *Video, t timing, c capabilities) string {
	chain := slices.Concat([]string{"null"}, t.frameFilters(v, c), t.repeatFilters())
	return fmt.Sprintf("[0:%d]%s,split=2[decoded][source];[source]%s[shown]", v.Index,
		strings.Join(append(t.partFilters(), uniformFrames(v)), ","), strings.Join(chain, ","))
}

// uniformFrames converts frames to the size, the pixel shape and the pixel format of the first frame, which the later
// filters require. A picture of another shape gets bars. Other frames pass unchanged.
func uniformFrames(v *Video) string {
	step, fields := 2, ""
	if v.Interlaced {
		step, fields = 4, ":interl=1" // scale each field separately
	}
	// shape is how much wider than the first picture one is. Bars of less than half a percent are left out: such a
	// difference is one of rounding.
	shape := fmt.Sprintf("iw/ih*if(between(sar,0.05,20),sar,1)/%.9f", float64(v.CodedWidth)/float64(v.CodedHeight)*v.SAR)
	side := func(size int, share string) string {
		return fmt.Sprintf("'st(0,%s);if(lt(ld(0),0.99),max(%d,round(%d*ld(0)/%d)*%[2]d),%[3]d)'", share, step, size, step)
	}
	scale := fmt.Sprintf("scale=w=%s:h=%s:eval=frame:flags=bicubic%s", side(v.CodedWidth, shape),
		side(v.CodedHeight, "1/("+shape+")"), fields)
	if v.PixelFormat == "pal8" {
		scale += ",format=bgra" // pad would lose the transparency
	}
	if s := v.colours(); s.matrix != "gbr" && scaleMatrices[s.matrix] == "" {
		// ffmpeg 7 refuses to scale frames that say so. colourFilters name the matrix.
		scale = "setparams=colorspace=bt709," + scale
	}
	return fmt.Sprintf("%s,pad=w=%d:h=%d:x='(ow-iw)/2':y='floor((oh-ih)/%d)*%d':eval=frame", scale, v.CodedWidth,
		v.CodedHeight, 2*step, step)
}

// frameFilters make the frames of the output from decoded ones. Those of a film are found again in its fields. Every frame must be there
// for it, so frames that are lost are repeated before: decimate computes all times from the first one.
func (t timing) frameFilters(v *Video, c capabilities) []string {
	switch {
	case v.Telecined:
		order := map[bool]string{true: "tff", false: "bff"}[v.TopFirst]
		return append(t.filters(), fmt.Sprintf("fps=30000/1001,settb=1/%d,fieldmatch=order=%s:combmatch=full", videoTimescale, order),
			strings.Replace(deinterlacer(v, c, false), "deint=all", "deint=interlaced", 1), "decimate")
	case v.Interlaced:
		return append([]string{deinterlacer(v, c, v.framesPerDecoded() == 2)}, t.filters()...)
	}
	return t.filters()
}

// deinterlacer makes a frame of each field, which keeps the motion smooth, or of
// two fields. It ignores the flags of single frames, which are as unreliable as
// the header.
func deinterlacer(v *Video, c capabilities, perField bool) string {
	name, parity, mode := "yadif", "bff", "send_frame"
	if perField {
		mode = "send_field"
	}
	if c.bwdif {
		name = "bwdif"
	}
	if v.TopFirst {
		parity = "tff"
	}
	return fmt.Sprintf("%s=mode=%s:parity=%s:deint=all", name, mode, parity)
}

// orientationFilters rotate and mirror as the file says. ffmpeg could do so
// itself, but its versions handle mirrored pictures differently.
func orientationFilters(v *Video) []string {
	var f []string
	switch v.Rotation {
	case 90:
		f = append(f, "transpose=clock")
	case 180:
		f = append(f, "hflip", "vflip")
	case 270:
		f = append(f, "transpose=cclock")
	}
	if v.Mirrored {
		f = append(f, "hflip")
	}
	return f
}
