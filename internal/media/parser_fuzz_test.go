package media

import (
	"math"
	"strings"
	"testing"
	"time"
)

func FuzzParseProbe(f *testing.F) {
	f.Add([]byte(`{"streams":[{"index":0,"codec_name":"h264","codec_type":"video","width":320,"height":240,` +
		`"sample_aspect_ratio":"4:3",` +
		`"side_data_list":[{"displaymatrix":"\n00000000: 0 65536 0\n00000001: -65536 0 0\n00000002: 0 0 1073741824\n"}]},` +
		`{"index":1,"codec_type":"audio","codec_name":"aac","channels":2,"sample_rate":"48000","tags":{"language":"eng"}}],` +
		`"format":{"format_name":"mpegts","duration":"1.5","start_time":1.4}}`))
	f.Add([]byte(`{"streams":[{"index":-1,"codec_type":"video","codec_name":"h264","width":-5,"height":1e9}],` +
		`"format":{"duration":"1e400"}}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		raw, err := parseProbe(b)
		if err != nil {
			return
		}
		tracks := map[int]*trackTiming{}
		for _, s := range raw.Streams {
			tracks[s.Index] = &trackTiming{packets: 10, end: 1}
		}
		info, err := describe(raw, tracks, 1, decoderSet{"h264": {"h264"}, "aac": {"aac"}})
		if err != nil {
			return
		}
		if info.Duration < 0 || info.Duration > maxDuration || math.IsNaN(info.Duration) {
			t.Errorf("duration %v", info.Duration)
		}
		for _, r := range Ladder(info) {
			if !r.IsAudio() && (r.Width < 2 || r.Height < 2 || !isEncodable(r.Width, r.Height)) {
				t.Errorf("rung %+v of %+v", r, info.Video)
			}
		}
		planTiming(info)
	})
}

func FuzzPackets(f *testing.F) {
	f.Add([]byte("stream_index=0|pts_time=0.1|dts_time=0|duration_time=0.04|flags=K_\n"+
		"stream_index=1|pts_time=N/A|flags=__\n"),
		true)
	f.Add([]byte("stream_index=0|pts_time=1e999|dts_time=-1e308|duration_time=NaN\n|||\nstream_index=99999999999\n"),
		false)
	f.Fuzz(func(t *testing.T, b []byte, jumping bool) {
		r := newPacketReader(jumping, nil)
		if n, err := r.Write(b); n != len(b) || err != nil {
			t.Fatalf("Write: %d, %v", n, err)
		}
		for i, tr := range r.finish() {
			d := tr.duration()
			if i < 0 || d < 0 || math.IsNaN(d) || math.IsInf(d, 0) || tr.maxGap < 0 || math.IsNaN(tr.maxGap) ||
				tr.keyframes > tr.packets {
				t.Errorf("stream %d: %+v", i, tr)
			}
		}
	})
}

func FuzzProgress(f *testing.F) {
	f.Add([]byte("frame=1\nout_time_us=N/A\nprogress=continue\nframe= 25\nout_time_us=1000000\ntotal_size=N/A\n" +
		"progress=end\n"))
	f.Add([]byte("out_time_us=9223372036854775807\nframe=-1\nprogress=continue\n=\nprogress"))
	f.Fuzz(func(t *testing.T, b []byte) {
		last := Progress{}
		r := newProgressReader(10, func(p Progress) {
			if p.Percent < last.Percent || p.Percent > maxPercent || p.ETA < 0 || p.Frames < last.Frames || math.IsNaN(p.Speed) {
				t.Errorf("%+v after %+v", p, last)
			}
			last = p
		}, time.Now)
		if n, err := r.Write(b); n != len(b) || err != nil {
			t.Fatalf("Write: %d, %v", n, err)
		}
	})
}

func FuzzPlaylist(f *testing.F) {
	f.Add("#EXTM3U\n#EXT-X-TARGETDURATION:6\n#EXT-X-MAP:URI=\"init.mp4\"\n#EXTINF:6.000000,\nseg-00000.m4s\n" +
		"#EXT-X-ENDLIST\n")
	f.Add("#EXTM3U\r\n#EXT-X-MAP:URI=\"../x\"\r\n#EXTINF:NaN,\n/etc/passwd\n#EXT-X-ENDLIST")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePlaylist(text)
		if err != nil {
			return
		}
		if len(p.segments) == 0 || !p.ended || !isPlainName(p.init) {
			t.Errorf("%+v is not complete", p)
		}
		for _, s := range p.segments {
			if !isPlainName(s.name) || strings.Contains(s.name, "/") || s.duration < 0 || math.IsNaN(s.duration) ||
				math.IsInf(s.duration, 0) {
				t.Errorf("segment %+v", s)
			}
		}
	})
}

func FuzzFrameList(f *testing.F) {
	f.Add([]byte("#software: Lavf\n#tb 0: 1/120000\n0, 0, 0, 4000, 472, 0x7c0a1850\n" +
		"0, 4000, 4000, 4000, 472, 0x923418b5\n"))
	f.Add([]byte("#tb 0: 0/0\n0,0,-9223372036854775808,9223372036854775807,1,x\n0,1,9223372036854775807,1,1,x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newFrameListReader()
		if n, err := r.Write(b); n != len(b) || err != nil {
			t.Fatalf("Write: %d, %v", n, err)
		}
		got := r.frameList()
		if got.frames < 0 || math.IsNaN(got.end) || got.end < got.first {
			t.Errorf("%+v", got)
		}
	})
}

func FuzzDisplayMatrix(f *testing.F) {
	f.Add("\n00000000:            0       65536           0\n00000001:       -65536           0           0\n" +
		"00000002:            0           0  1073741824\n")
	f.Fuzz(func(t *testing.T, matrix string) {
		if degrees, _, _ := parseDisplayMatrix(matrix); degrees%90 != 0 || degrees < 0 || degrees > 270 {
			t.Errorf("%d degrees", degrees)
		}
	})
}
