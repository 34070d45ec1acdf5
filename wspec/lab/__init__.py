"""The laboratory: measuring, calibration, simulation, search, reports. Nothing that a launch imports."""
