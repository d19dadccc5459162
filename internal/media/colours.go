package media

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// colourSpace is how a source's values become light, in ffmpeg's names.
type colourSpace struct {
	matrix, primaries, transfer string
	unknown                     []string // what ffmpeg cannot convert
}

// scaleMatrices are the matrices that the scale filter converts, and its names for them.
var scaleMatrices = map[string]string{
	"bt709": "bt709", "fcc": "fcc", "bt470bg": "bt601", "smpte170m": "bt601", "smpte240m": "smpte240m", "bt2020nc": "bt2020",
}

var zscalePrimaries = []string{
	"bt709", "bt470m", "bt470bg", "smpte170m", "smpte240m", "film", "bt2020", "smpte428", "smpte431", "smpte432", "ebu3213",
	"jedec-p22",
}

// displayTransfers are the transfers that standard displays show alike; zscaleTransfers are not.
var (
	displayTransfers = []string{
		"", "bt709", "smpte170m", "bt2020-10", "bt2020-12", "iec61966-2-1", "iec61966-2-4", "bt1361e", "smpte240m", "bt470m",
		"bt470bg",
	}
	zscaleTransfers = []string{"smpte2084", "arib-std-b67", "linear", "log100", "log316"}
)

// colours are those of the source. What the file does not say is as players assume it: small pictures have the matrix
// of BT.601. That goes for what ffmpeg cannot convert, too.
func (v *Video) colours() (s colourSpace) {
	choose := func(kind, value, otherwise string, known []string) string {
		if slices.Contains(known, value) {
			return value
		}
		if value != "" {
			s.unknown = append(s.unknown, kind+" "+value)
		}
		return otherwise
	}
	s.transfer, s.matrix = "bt709", "gbr"
	if !slices.Contains(displayTransfers, v.Transfer) {
		s.transfer = choose("transfer", v.Transfer, "bt709", zscaleTransfers)
	}
	matrix, primaries := "bt709", "bt709"
	if v.HDR != "" || strings.HasPrefix(v.Matrix, "bt2020") {
		matrix, primaries = "bt2020nc", "bt2020"
	} else if v.CodedHeight <= 576 && v.CodedWidth <= 1024 && !isGray(v.PixelFormat) {
		matrix = "smpte170m"
	}
	s.primaries = choose("primaries", v.Primaries, primaries, zscalePrimaries)
	if !isRGB(v.PixelFormat) {
		s.matrix = choose("matrix", v.Matrix, matrix, s.convertibleMatrices(v))
	}
	return s
}

// convertibleMatrices are those of the scale filter and of zscale, which converts two of them only if the rest is what
// they are defined for.
func (s colourSpace) convertibleMatrices(v *Video) []string {
	known := append(slices.Collect(maps.Keys(scaleMatrices)), "ycgco")
	if s.transfer == "bt709" {
		known = append(known, "bt2020c")
	}
	if v.HDR != "" && s.primaries == "bt2020" {
		known = append(known, "ictcp")
	}
	return known
}

// needsZscale reports whether the scale filter, which converts nothing but some matrices, is not enough.
func (s colourSpace) needsZscale() bool {
	return s.primaries != "bt709" || s.transfer != "bt709" || scaleMatrices[s.matrix] == "" && s.matrix != "gbr"
}

// usesZscale reports whether zscale converts, which is more exact for these matrices, too, and as fast.
func (s colourSpace) usesZscale(c capabilities) bool {
	return c.zscale && (s.needsZscale() || s.matrix != "bt709" && s.matrix != "gbr")
}

// colourFilters scale to the largest rung and convert to what every player can
// show: 8-bit 4:2:0, BT.709, limited range, square pixels.
func colourFilters(v *Video, top Rung, c capabilities) []string {
	s := v.colours()
	in := "tv"
	if v.FullRange || s.matrix == "gbr" {
		in = "pc"
	}
	f := alphaFilters(v, s)
	switch {
	case s.usesZscale(c):
		f = append(f, zscaleFilters(v, s, in, top, c)...)
	case s.needsZscale():
		f = append(f, approximateColourFilters(v, s, in, top)...)
	case s.matrix == "gbr":
		f = append(f, fmt.Sprintf("scale=w=%d:h=%d:out_color_matrix=bt709:out_range=tv:flags=bicubic", top.Width, top.Height))
	default:
		f = append(f, fmt.Sprintf("scale=w=%d:h=%d:out_color_matrix=bt709:out_range=tv:flags=bicubic:"+
			"in_color_matrix=%s:in_range=%s", top.Width, top.Height, scaleMatrices[s.matrix], in))
	}
	// ffmpeg 7 tags a rendition like its frames and ignores the encoder's options.
	return append(f, "format=yuv420p", "setsar=1",
		"setparams=range=tv:color_primaries=bt709:color_trc=bt709:colorspace=bt709")
}

// hdrTransfers are ffmpeg's names of the transfers of HDR.
var hdrTransfers = map[string]string{"pq": "smpte2084", "hlg": "arib-std-b67"}

// hdrFilters scale to the largest HDR rung, and convert to 10 bits in BT.2020 with the transfer of the source.
func hdrFilters(v *Video, top Rung) []string {
	s, in, transfer := v.colours(), "tv", hdrTransfers[top.HDR]
	if v.FullRange || s.matrix == "gbr" {
		in = "pc"
	}
	return append(alphaFilters(v, s), zscaleFormats(v, s),
		fmt.Sprintf("zscale=w=%d:h=%d:f=bicubic:param_a=0:param_b=0.6:min=%s:pin=%s:tin=%s:rin=%s:p=bt2020:t=%[5]s:m=bt2020nc:r=tv",
			top.Width, top.Height, s.matrix, s.primaries, transfer, in),
		"format=yuv420p10le", "setsar=1", "setparams=range=tv:color_primaries=bt2020:color_trc="+transfer+":colorspace=bt2020nc")
}

// asSource describes the pictures of an HDR rung as those of a source.
func (r Rung) asSource() *Video {
	return &Video{
		CodedWidth: r.Width, CodedHeight: r.Height, Width: r.Width, Height: r.Height, SAR: 1, HDR: r.HDR,
		PixelFormat: "yuv420p10le", Matrix: "bt2020nc", Primaries: "bt2020", Transfer: hdrTransfers[r.HDR],
	}
}

// alphaFilters put a transparent picture on black, by multiplying it by its alpha channel.
func alphaFilters(v *Video, s colourSpace) []string {
	with, without, depth := "yuva444p", "yuv444p", ""
	if s.matrix == "gbr" {
		with, without = "gbrap", "gbrp"
	}
	if s.needsZscale() {
		depth = "10le"
	}
	if !v.Alpha {
		return nil
	}
	return []string{"format=" + with + depth, "premultiply=inplace=1", "format=" + without + depth}
}

func isRGB(format string) bool {
	for _, prefix := range []string{"rgb", "bgr", "gbr", "argb", "abgr", "0rgb", "0bgr", "pal8", "x2rgb", "x2bgr"} {
		if strings.HasPrefix(format, prefix) {
			return true
		}
	}
	return false
}

func isGray(format string) bool {
	return strings.HasPrefix(format, "gray") || strings.HasPrefix(format, "ya") || strings.HasPrefix(format, "mono")
}

// zscaleFormats are the formats in which zscale gets frames. It rejects subsampled ones of odd sizes, and does not
// give gray ones colours.
func zscaleFormats(v *Video, s colourSpace) string {
	switch {
	case s.matrix == "gbr":
		return "format=gbrp|gbrp10le|gbrp12le|gbrp16le"
	case v.CodedWidth%2+v.CodedHeight%2 > 0 || isGray(v.PixelFormat):
		return "format=yuvj444p|yuv444p|yuv444p10le|yuv444p12le|yuv444p16le"
	}
	return "format=yuvj420p|yuvj422p|yuvj444p|yuv420p|yuv422p|yuv444p|yuv420p10le|yuv422p10le|yuv444p10le|" +
		"yuv420p12le|yuv422p12le|yuv444p12le|yuv420p16le|yuv422p16le|yuv444p16le"
}

// zscaleFilters convert in linear light. PQ and HLG are tone-mapped there.
func zscaleFilters(v *Video, s colourSpace, in string, top Rung, c capabilities) []string {
	const toBT709 = "p=bt709:t=bt709:m=bt709:r=tv"
	if s.matrix == "smpte240m" {
		s.matrix = "7" // its name depends on ffmpeg's version
	}
	// The parameters make bicubic as sharp as that of the scale filter.
	convert := fmt.Sprintf("zscale=w=%d:h=%d:f=bicubic:param_a=0:param_b=0.6:min=%s:pin=%s:tin=%s:rin=%s:", top.Width,
		top.Height, s.matrix, s.primaries, s.transfer, in)
	f := []string{zscaleFormats(v, s)}
	if v.HDR == "" {
		return append(f, convert+toBT709)
	}
	f = append(f, convert+"p=bt709:t=linear:npl=100", "format=gbrpf32le", "tonemap=tonemap=hable:desat=0",
		"zscale="+toBT709)
	if c.sidedata {
		// The source's mastering display data does not apply to the result.
		f = append(f, "sidedata=mode=delete")
	}
	return f
}

// approximateColourFilters work without zscale. The colorspace filter converts in linear light, but does not know
// every matrix, nor the transfer of displays: gamma22 is the nearest.
func approximateColourFilters(v *Video, s colourSpace, in string, top Rung) []string {
	f := []string{fmt.Sprintf("scale=w=%d:h=%d:flags=bicubic:in_range=%s:out_range=tv", top.Width, top.Height, in)}
	if v.HDR != "" {
		f[0] += ":in_color_matrix=" + cmp.Or(scaleMatrices[s.matrix], "bt2020")
		f, s.matrix = append(append(f, approximateToneMap(v.HDR)...), "scale=out_range=tv"), "gbr"
	}
	switch s.matrix {
	case "gbr":
		f[len(f)-1] += ":out_color_matrix=bt709"
		s.matrix = "bt709"
	case "bt2020c":
		s.matrix = "bt2020nc"
	}
	return append(f, "format=yuv444p10le", fmt.Sprintf("colorspace=ispace=%s:iprimaries=%s:itrc=gamma22:irange=tv:"+
		"space=bt709:primaries=bt709:trc=gamma22:range=tv", s.matrix, s.primaries))
}

// approximateToneMap maps each channel of HDR through a table, which is not exact.
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
	return []string{"format=gbrp10le", fmt.Sprintf("lutrgb=r='%s':g='%s':b='%s'", curve, curve, curve)}
}
