"""Linear regions of a network on a sphere and on a torus, exactly, with a picture."""

import fiberscope as fs

net = fs.Network.random((3, 16, 16, 1), seed=1)
for surface in (fs.Sphere(resolution=3), fs.Torus(resolution=4)):
    found = fs.regions_on(net, surface)
    print(found)
    print(f"  {found.num_patterns} sign vectors, {found.num_pieces} pieces of {len(surface.mesh.triangles)} triangles")
    print(f"  largest region {found.areas.max():.3f}, smallest {found.areas.min():.2g}")
    print(f"  boundaries {found.boundary_length:.2f}, of which {found.visible_length:.2f} are visible")
    print(f"  the mesh lies within {surface.deviation:.3f} of the round surface")

exact = fs.round_regions(net, fs.Sphere())
print(exact)
print(f"  boundaries {exact.boundary_length:.2f}, areas {exact.areas.sum():.6f}, largest {exact.areas.max():.3f}")

fs.plot.save_figure(fs.plot.round_regions(exact), "round_sphere.png")
fs.plot.save_figure(fs.plot.surface(fs.regions_on(net, fs.Sphere(resolution=3))), "sphere.png")
print("wrote sphere.png and round_sphere.png")
