package media

import (
	"fmt"

	"github.com/Eyevinn/mp4ff/hevc"
)

// parseHEVC reads HEVC's sequence parameters. Those that our encoders write are short, which bounds what the library allocates.
func parseHEVC(nalu []byte) (p *pictureParameters, sps *hevc.SPS, err error) {
	unreadable := fmt.Errorf("its HEVC parameters cannot be read")
	defer func() {
		if recover() != nil {
			p, err = nil, unreadable
		}
	}()
	if len(nalu) < 4 || len(nalu) > maxParameterBytes {
		return nil, nil, unreadable
	}
	if sps, err = hevc.ParseSPSNALUnit(nalu); err != nil || len(sps.SubLayeringOrderingInfos) == 0 {
		return nil, nil, unreadable
	}
	width, height := sps.ImageSize()
	p = &pictureParameters{
		codec: hevcCodec, profile: int(sps.ProfileTierLevel.GeneralProfileIDC), level: int(sps.ProfileTierLevel.GeneralLevelIDC),
		chroma: uint(sps.ChromaFormatIDC), bits: uint(max(sps.BitDepthLumaMinus8, sps.BitDepthChromaMinus8)),
		width: int(width), height: int(height), hasSquarePixels: true,
		reordered: int(sps.SubLayeringOrderingInfos[len(sps.SubLayeringOrderingInfos)-1].MaxNumReorderPics),
	}
	if v := sps.VUI; v != nil {
		p.hasSquarePixels = v.SampleAspectRatioWidth == v.SampleAspectRatioHeight && !v.DefaultDisplayWindowFlag
		p.colour = colourCode{int(v.ColourPrimaries), int(v.TransferCharacteristics), int(v.MatrixCoefficients), v.VideoFullRangeFlag}
	}
	if p.width > maxEncodedSide || p.height > maxEncodedSide || sps.SeparateColourPlaneFlag || sps.ProfileTierLevel.GeneralTierFlag {
		return nil, nil, fmt.Errorf("its HEVC parameters are not those of the Main tier, in a size that can be encoded")
	}
	return p, sps, nil
}

// hevcType is the type of an HEVC NAL unit.
func hevcType(unit []byte) hevc.NaluType { return hevc.GetNaluType(unit[0]) }
