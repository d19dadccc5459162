package media

import (
	"fmt"
	"strings"
)

// videoGraph is ffmpeg's filter graph for all video rungs. It decodes,
// deinterlaces, rotates, tone-maps and scales to the largest rung once, and
// scales the other rungs from that. Its outputs are [decoded], every frame from
// the decoder; [shown], the frames for the encoders; and [v0], [v1] …, one per
// rung, through the filter upload if there is one. Every output must get frames
// continuously: ffmpeg 7 buffers the frames of the others until it does.
func videoGraph(info *Info, rungs []Rung, t timing, c capabilities, upload string) string {
	v := info.Video
	chain := []string{"null"}
	if v.Interlaced {
		chain = append(chain, deinterlacer(v, c, v.framesPerDecoded() == 2))
	}
	chain = append(chain, t.filters()...)
	chain = append(chain, orientationFilters(v)...)
	chain = append(chain, colourFilters(v, rungs[0], c)...)
	chain = append(chain, t.repeatFilters()...)

	var b strings.Builder
	decoded, trim := t.cut.decodedLabel()
	shown, trimShown := t.cut.shownLabel()
	fmt.Fprintf(&b, "[0:%d]%s,split=2[%s][source]%s;[source]%s,split=%d[%s]", v.Index, strings.Join(append(t.cut.sourceFilters(),
		uniformFrames(v)), ","), decoded, trim, strings.Join(chain, ","), len(rungs)+1, shown)
	for i := range rungs {
		fmt.Fprintf(&b, "[s%d]", i)
	}
	b.WriteString(trimShown)
	for i, r := range rungs {
		scale := "null"
		if i > 0 {
			scale = fmt.Sprintf("scale=w=%d:h=%d:flags=bicubic,setsar=1", r.Width, r.Height)
		}
		if upload != "" {
			scale += "," + upload
		}
		fmt.Fprintf(&b, ";[s%d]%s[v%d]", i, scale, i)
	}
	return b.String()
}

// countGraph is videoGraph for counting frames: its outputs are [decoded] and [shown].
func countGraph(v *Video, t timing, c capabilities) string {
	chain := []string{"null"}
	if v.Interlaced {
		chain = append(chain, deinterlacer(v, c, v.framesPerDecoded() == 2))
	}
	chain = append(append(chain, t.filters()...), t.repeatFilters()...)
	return fmt.Sprintf("[0:%d]%s,split=2[decoded][source];[source]%s[shown]", v.Index, uniformFrames(v),
		strings.Join(chain, ","))
}

// uniformFrames converts frames to the declared size and to the pixel format of
// the first frame, which the later filters require. Other frames pass unchanged.
func uniformFrames(v *Video) string {
	scale := fmt.Sprintf("scale=w=%d:h=%d:flags=bicubic", v.CodedWidth, v.CodedHeight)
	if v.Interlaced {
		scale += ":interl=1" // scale each field separately
	}
	return scale
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

// colourFilters scale to the largest rung and convert to what every player can
// show: 8-bit 4:2:0, BT.709, limited range, square pixels.
func colourFilters(v *Video, top Rung, c capabilities) []string {
	// ffmpeg 7 tags a rendition like its frames and ignores the encoder's options.
	end := []string{"format=yuv420p", "setsar=1",
		"setparams=range=tv:color_primaries=bt709:color_trc=bt709:colorspace=bt709"}
	if v.HDR != "" && c.zscale {
		return append(toneMap(v, top, c), end...)
	}
	var f []string
	if v.Alpha {
		// Multiplying by the alpha channel puts the picture on black.
		f = append(f, "format=yuva444p", "premultiply=inplace=1", "format=yuv444p")
	}
	in := "tv"
	if v.FullRange {
		in = "pc"
	}
	if v.HDR != "" {
		f = append(f, fmt.Sprintf("scale=w=%d:h=%d:in_color_matrix=bt2020:in_range=%s:flags=bicubic",
			top.Width, top.Height, in))
		f = append(f, approximateToneMap(v.HDR)...)
		f = append(f, "scale=out_color_matrix=bt709:out_range=tv")
		return append(f, end...)
	}
	scale := fmt.Sprintf("scale=w=%d:h=%d:out_color_matrix=bt709:out_range=tv:flags=bicubic", top.Width, top.Height)
	if !isRGB(v.PixelFormat) || v.Alpha {
		scale += fmt.Sprintf(":in_color_matrix=%s:in_range=%s", colourMatrix(v), in)
	}
	return append(append(f, scale), end...)
}

func isRGB(format string) bool {
	for _, prefix := range []string{"rgb", "bgr", "gbr", "argb", "abgr", "0rgb", "0bgr", "pal8", "x2rgb", "x2bgr"} {
		if strings.HasPrefix(format, prefix) {
			return true
		}
	}
	return false
}

// colourMatrix names the source's colour matrix for the scale filter. If the file
// does not say, small pictures use BT.601.
func colourMatrix(v *Video) string {
	switch v.Matrix {
	case "bt709", "smpte240m", "fcc":
		return v.Matrix
	case "bt470bg", "smpte170m":
		return "bt601"
	case "bt2020nc", "bt2020c":
		return "bt2020"
	}
	if v.CodedHeight <= 576 && v.CodedWidth <= 1024 {
		return "bt601"
	}
	return "bt709"
}

// toneMap converts PQ and HLG to BT.709 in linear light.
func toneMap(v *Video, top Rung, c capabilities) []string {
	transfer, in := "smpte2084", "tv"
	if v.HDR == "hlg" {
		transfer = "arib-std-b67"
	}
	if v.FullRange {
		in = "pc"
	}
	f := []string{
		// zscale rejects subsampled frames of odd sizes.
		"format=yuv444p10le",
		fmt.Sprintf("zscale=w=%d:h=%d:f=bicubic:tin=%s:pin=bt2020:min=bt2020nc:rin=%s:t=linear:npl=100",
			top.Width, top.Height, transfer, in),
		"format=gbrpf32le", "zscale=p=bt709", "tonemap=tonemap=hable:desat=0",
		"zscale=p=bt709:t=bt709:m=bt709:r=tv",
	}
	if c.sidedata {
		// The source's mastering display data does not apply to the result.
		f = append(f, "sidedata=mode=delete")
	}
	return f
}

// approximateToneMap works without zscale: it maps each channel through a table
// and converts the primaries afterwards, which is not exact.
func approximateToneMap(hdr string) []string {
	// e is the coded value from 0 to 1, which the table may exceed. l is light;
	// 1 is paper white.
	const e = "min(1,val/maxval)"
	const p = "pow(" + e + ",1/78.84375)"
	l := "(100*pow(max(" + p + "-0.8359375,0)/(18.8515625-18.6875*" + p + "),1/0.1593017578))"
	if hdr == "hlg" {
		l = "(if(lte(" + e + ",0.5)," + e + "*" + e + "/3,(exp((" + e + "-0.55991073)/0.17883277)+0.28466892)/12)*10)"
	}
	// Reinhard's curve maps 10 to 1 and barely changes dark parts. The display
	// gamma follows.
	curve := "maxval*pow(min(1," + l + "*(1+" + l + "/100)/(1+" + l + ")),1/2.4)"
	curve = strings.ReplaceAll(curve, ",", "\\,")
	return []string{
		"format=gbrp10le", fmt.Sprintf("lutrgb=r='%s':g='%s':b='%s'", curve, curve, curve), "format=gbrp",
		"colorchannelmixer=rr=1.6605:rg=-0.5876:rb=-0.0728:gr=-0.1246:gg=1.1329:gb=-0.0083:br=-0.0182:bg=-0.1006:bb=1.1187",
	}
}
