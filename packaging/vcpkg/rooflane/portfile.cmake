# A vcpkg port of this tree. From the repository's root:
#   vcpkg install rooflane --overlay-ports=packaging/vcpkg
set(SOURCE_PATH "${CURRENT_PORT_DIR}/../../..")

if("opencl" IN_LIST FEATURES)
  set(OPENCL enabled)
else()
  set(OPENCL disabled)
endif()

vcpkg_configure_meson(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    -Disa-targets=all
    -Dclblast=${OPENCL}
    -Donednn=disabled
    -Dopencl=${OPENCL}
    -Dpython=disabled
    -Dtests=false
)
vcpkg_install_meson()
vcpkg_fixup_pkgconfig()
vcpkg_copy_tools(TOOL_NAMES rooflane rooflane-runner AUTO_CLEAN)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
