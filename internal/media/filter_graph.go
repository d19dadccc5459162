package media

import (
	"fmt"
	"strings"
)

// videoGraph is ffmpeg's filter graph for all video rungs. The source is
// decoded, deinterlaced, turned, tone-mapped and scaled to the largest rung
// once; the others are scaled from that. Its outputs are [decoded], every
// frame as the decoder gave it, [shown], the frames as the encoders get them,
// and [v0], [v1] …, one for each rung. Each must have frames all the time: ffmpeg 7
// keeps those of the others in memory until it has.
func videoGraph(info *Info, rungs []Rung, t timing, c capabilities) string {
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
	fmt.Fprintf(&b, "[0:%d]%s,split=2[decoded][source];[source]%s,split=%d[shown]", v.Index, uniformFrames(v), strings.Join(chain, ","), len(rungs)+1)
	for i := range rungs {
		fmt.Fprintf(&b, "[s%d]", i)
	}
	for i, r := range rungs {
		scale := "null"
		if i > 0 {
			scale = fmt.Sprintf("scale=w=%d:h=%d:flags=bicubic,setsar=1", r.Width, r.Height)
		}
		fmt.Fprintf(&b, ";[s%d]%s[v%d]", i, scale, i)
	}
	return b.String()
}

// uniformFrames brings all frames to the size that the source claims, and to the pixel format
// of the first, for the filters behind it that know no other. A frame that has both
// passes as it is.
func uniformFrames(v *Video) string {
	scale := fmt.Sprintf("scale=w=%d:h=%d:flags=bicubic", v.CodedWidth, v.CodedHeight)
	if v.Interlaced {
		scale += ":interl=1" // each field for itself
	}
	return scale
}

// deinterlacer makes a frame of each field, which keeps the motion as smooth as it
// was, or one of two. All frames are treated: the flags on single frames are no
// better than the header's.
func deinterlacer(v *Video, c capabilities, each bool) string {
	name, parity, mode := "yadif", "bff", "send_frame"
	if each {
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

// turn rotates as the file asks. ffmpeg would do so itself, but its versions
// differ in what they make of mirrored pictures.
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

// picture brings frames to the size of the largest rung and to what every
// player can show: 8-bit 4:2:0, BT.709, limited range, square pixels.
func colourFilters(v *Video, top Rung, c capabilities) []string {
	// ffmpeg 7 tags a rendition as its frames are, whatever the encoder's options say.
	end := []string{"format=yuv420p", "setsar=1", "setparams=range=tv:color_primaries=bt709:color_trc=bt709:colorspace=bt709"}
	if v.HDR != "" && c.zscale {
		return append(toneMap(v, top, c), end...)
	}
	var f []string
	if v.Alpha {
		// Multiplied by its transparency, a picture lies on black.
		f = append(f, "format=yuva444p", "premultiply=inplace=1", "format=yuv444p")
	}
	in := "tv"
	if v.FullRange {
		in = "pc"
	}
	if v.HDR != "" {
		f = append(f, fmt.Sprintf("scale=w=%d:h=%d:in_color_matrix=bt2020:in_range=%s:flags=bicubic", top.Width, top.Height, in))
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

// matrix is how the source's colours are coded, in the scaler's words. When
// the file does not say, small pictures are from the time of BT.601.
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

// toneMap brings PQ and HLG to BT.709 through linear light.
func toneMap(v *Video, top Rung, c capabilities) []string {
	transfer, in := "smpte2084", "tv"
	if v.HDR == "hlg" {
		transfer = "arib-std-b67"
	}
	if v.FullRange {
		in = "pc"
	}
	f := []string{
		// zscale takes no subsampled frames of odd sizes.
		"format=yuv444p10le",
		fmt.Sprintf("zscale=w=%d:h=%d:f=bicubic:tin=%s:pin=bt2020:min=bt2020nc:rin=%s:t=linear:npl=100", top.Width, top.Height, transfer, in),
		"format=gbrpf32le", "zscale=p=bt709", "tonemap=tonemap=hable:desat=0",
		"zscale=p=bt709:t=bt709:m=bt709:r=tv",
	}
	if c.sidedata {
		// The mastering display of the source is not that of the result.
		f = append(f, "sidedata=mode=delete")
	}
	return f
}

// roughToneMap does without zscale: each channel goes through a table, and the
// step to narrower primaries is made after it, where it is only nearly right.
func approximateToneMap(hdr string) []string {
	// e is the coded value from 0 to 1, which the table may exceed; l is light,
	// 1 being white on paper.
	const e = "min(1,val/maxval)"
	l := "(100*pow(max(pow(" + e + ",1/78.84375)-0.8359375,0)/(18.8515625-18.6875*pow(" + e + ",1/78.84375)),1/0.1593017578))"
	if hdr == "hlg" {
		l = "(if(lte(" + e + ",0.5)," + e + "*" + e + "/3,(exp((" + e + "-0.55991073)/0.17883277)+0.28466892)/12)*10)"
	}
	// Reinhard's curve, which leaves dark parts nearly alone and brings 10 to
	// 1; then the gamma of displays.
	curve := "maxval*pow(min(1," + l + "*(1+" + l + "/100)/(1+" + l + ")),1/2.4)"
	curve = strings.ReplaceAll(curve, ",", "\\,")
	return []string{
		"format=gbrp10le", fmt.Sprintf("lutrgb=r='%s':g='%s':b='%s'", curve, curve, curve), "format=gbrp",
		"colorchannelmixer=rr=1.6605:rg=-0.5876:rb=-0.0728:gr=-0.1246:gg=1.1329:gb=-0.0083:br=-0.0182:bg=-0.1006:bb=1.1187",
	}
}
